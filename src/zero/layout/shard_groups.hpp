#pragma once
/// The groups of ranks that share the model states (MiCS, HSDP): consecutive ranks are a shard
/// group, which has one copy of them. Zhang et al., "MiCS: Near-linear Scaling for Training
/// Gigantic Model on Public Cloud", VLDB'22. And those that have secondary shards of the weights
/// (hpZ).

#include <memory>

#include "tessera/comm/compose/mesh.hpp"
#include "tessera/zero/layout/engine_config.hpp"

namespace tessera::zero::detail {

class ShardGroups {
 public:
  /// The ranks along axis shard share a copy, those along the other axes have copies. At stage 0,
  /// which partitions nothing, all ranks are one group. Collective.
  /// @throws ConfigError when the size of a group does not divide the number of ranks,
  /// InternalError for groups of one rank
  ShardGroups(std::shared_ptr<comm::Mesh> mesh, EngineConfig const& config);

  comm::Collectives& world() const { return mesh_->world(); }
  /// The ranks that share one copy.
  comm::Collectives& shards() const { return shards_ ? *shards_ : world(); }
  /// The ranks that have the same shard of their copies; null: there is one copy.
  comm::Collectives* replicas() const { return replicas_; }
  /// The ranks that gather weights from secondary shards; null: none.
  comm::Collectives* secondary() const { return secondary_.get(); }
  /// Groups of quantized gradients: the ranks of this node, and those with the same place on the
  /// others; null: there is one.
  comm::Collectives* node() const { return node_.get(); }
  comm::Collectives* rail() const { return rail_.get(); }
  int copies() const { return replicas_ ? replicas_->size() : 1; }

 private:
  std::shared_ptr<comm::Mesh> mesh_;
  comm::Collectives *shards_ = nullptr, *replicas_ = nullptr;  ///< groups of the mesh
  std::unique_ptr<comm::Collectives> secondary_, node_, rail_;
};

}  // namespace tessera::zero::detail
