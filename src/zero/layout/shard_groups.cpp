#include "layout/shard_groups.hpp"

#include <utility>

#include "tessera/core/error.hpp"

namespace tessera::zero::detail {

namespace {

std::unique_ptr<comm::Collectives> split_as(comm::Collectives& world, topology::RankGroup group,
                                            char const* name) {
  group.name = concat(name, " ", group.color);
  return world.split(group);
}

}  // namespace

ShardGroups::ShardGroups(std::shared_ptr<comm::Mesh> mesh, EngineConfig const& config)
    : mesh_(std::move(mesh)) {
  using namespace topology;
  auto& world = mesh_->world();
  int const size = world.size(), rank = world.rank(), ranks = mesh_->shape().size(Axis::shard);
  if (size == 1) return;
  auto const& weights = settings<ShardedWeights>(config);
  if (weights.secondary_group_size > 1)
    secondary_ =
        split_as(world, shard_group(size, rank, weights.secondary_group_size), "secondary group");
  if (auto const& gradients = weights.quantized_gradients) {
    int const per_node = gradients->ranks_per_node;
    auto const node = shard_group(size, rank, per_node);
    if (per_node > 1) node_ = split_as(world, node, "gradient node");
    if (per_node < size) rail_ = split_as(world, replica_group(size, rank, per_node), "rail");
  }
  if (stage_of(config.partition) == 0 || ranks == size) return;
  TESSERA_VALIDATE(ranks > 1, InternalError, "shard groups of ", ranks,
                   " rank partition nothing; use at least 2 ranks, or ZeRO stage 0");
  shards_ = &mesh_->group(Axis::shard);
  replicas_ = &mesh_->group(AxisSet(Axis::shard).complement());
}

}  // namespace tessera::zero::detail
