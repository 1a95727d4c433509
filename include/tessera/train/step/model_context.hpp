#pragma once
/// The objects that every pass of the model needs, owned by the run.

#include "tessera/comm/compose/mesh.hpp"
#include "tessera/memory/param_provider.hpp"
#include "tessera/memory/queue.hpp"
#include "tessera/model/decoder/causal_lm.hpp"

namespace tessera::train {

/// Model, weights, queue and mesh of a run.
struct ModelContext {
  model::CausalLm& model;
  memory::WeightProvider& weights;
  memory::Queue& compute;
  comm::Mesh& mesh;  ///< mesh of all ranks

  bool is_root() const { return mesh.rank() == 0; }
  /// The ranks that read different samples. Collective on the first call, see comm::Mesh::group().
  comm::Collectives& data_ranks() const { return mesh.group(topology::data_axes); }
};

}  // namespace tessera::train
