#include "tessera/zero/engine/weights.hpp"

#include "engine/weights_base.hpp"

namespace tessera::zero {
namespace detail {

EngineConfig on_mesh(EngineConfig config, comm::Mesh const& mesh) {
  int const ranks = mesh.shape().size(topology::Axis::shard);
  int const group = settings<ShardedStates>(config).shard_group_size;
  TESSERA_VALIDATE(group == 0 || group == ranks, InternalError, "shard groups of ", group,
                   " ranks on a mesh ", describe(mesh.shape()));
  auto* const states = edit<ShardedStates>(config);
  if (states && ranks < mesh.size()) states->shard_group_size = ranks;
  return config;
}

std::shared_ptr<comm::Mesh> own_mesh(EngineConfig const& config, comm::Collectives& comm) {
  validate(config);
  int const ranks = comm.size(), group = settings<ShardedStates>(config).shard_group_size;
  return std::make_shared<comm::Mesh>(comm,
                                      topology::data_parallel_mesh(ranks, ranks == 1 ? 0 : group));
}

}  // namespace detail

namespace {

std::unique_ptr<Weights> make_weights(std::shared_ptr<comm::Mesh> const& mesh,
                                      EngineConfig const& config,
                                      std::vector<memory::UnitSpec> const& units,
                                      memory::Queue& compute) {
  detail::validate(config);
  TESSERA_VALIDATE(!units.empty(), InternalError, "a model without units has no weights");
  return detail::make_on_all_ranks(mesh->world(), [&]() -> std::unique_ptr<Weights> {
    return std::make_unique<detail::WeightsBase<Weights>>(config, units, mesh, compute);
  });
}

}  // namespace

std::unique_ptr<Weights> make_weights(EngineConfig const& config,
                                      std::vector<memory::UnitSpec> const& units, comm::Mesh& mesh,
                                      memory::Queue& compute) {
  return make_weights({std::shared_ptr<comm::Mesh>(), &mesh}, detail::on_mesh(config, mesh), units,
                      compute);
}

std::unique_ptr<Weights> make_weights(EngineConfig const& config,
                                      std::vector<memory::UnitSpec> const& units,
                                      comm::Collectives& comm, memory::Queue& compute) {
  return make_weights(detail::own_mesh(config, comm), config, units, compute);
}

}  // namespace tessera::zero
