#include "tessera/zero/engine/weights.hpp"

#include "engine/weights_base.hpp"
#include "tessera/topology/mesh.hpp"

namespace tessera::zero {
namespace detail {

EngineConfig on_mesh(EngineConfig config, comm::Mesh const& mesh) {
  int const ranks = mesh.shape().size(topology::Axis::shard);
  TESSERA_VALIDATE(config.shard_group_size == 0 || config.shard_group_size == ranks, InternalError,
                   "shard groups of ", config.shard_group_size, " ranks on a mesh ",
                   describe(mesh.shape()));
  if (config.stage > 0 && ranks < mesh.size()) config.shard_group_size = ranks;
  return config;
}

std::shared_ptr<comm::Mesh> own_mesh(EngineConfig const& config, comm::Collectives& comm) {
  validate(config);
  int const ranks = comm.size(), group = ranks == 1 ? 0 : config.shard_group_size;
  return std::make_shared<comm::Mesh>(comm, topology::data_parallel_mesh(ranks, group));
}

}  // namespace detail

namespace {

std::unique_ptr<Weights> make_on(std::shared_ptr<comm::Mesh> const& mesh, EngineConfig const& given,
                                 std::vector<memory::UnitSpec> const& units,
                                 memory::Queue& compute) {
  detail::validate(given);
  EngineConfig config = detail::with_wire_of_sums(given);
  config.optimizer_swap.reset();
  config.optimizer_offload.reset();
  TESSERA_VALIDATE(!units.empty(), InternalError, "a model without units has no weights");
  return detail::make_on_all_ranks(mesh->world(), [&]() -> std::unique_ptr<Weights> {
    return std::make_unique<detail::WeightsBase<Weights>>(config, units, mesh, compute);
  });
}

}  // namespace

std::unique_ptr<Weights> make_weights(EngineConfig const& config,
                                      std::vector<memory::UnitSpec> const& units, comm::Mesh& mesh,
                                      memory::Queue& compute) {
  return make_on({std::shared_ptr<comm::Mesh>(), &mesh}, detail::on_mesh(config, mesh), units,
                 compute);
}

std::unique_ptr<Weights> make_weights(EngineConfig const& config,
                                      std::vector<memory::UnitSpec> const& units,
                                      comm::Collectives& comm, memory::Queue& compute) {
  return make_on(detail::own_mesh(config, comm), config, units, compute);
}

}  // namespace tessera::zero
