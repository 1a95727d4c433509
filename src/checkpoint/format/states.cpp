#include "tessera/checkpoint/format/states.hpp"

#include "tessera/core/error.hpp"

namespace tessera::checkpoint {
namespace {

void add(StateLayers& layers, std::string const& name, optim::Extent extent) {
  bool const is_elementwise = extent == optim::Extent::elementwise;
  if (layers.empty()) layers.emplace_back();
  TESSERA_VALIDATE(!is_elementwise || layers.size() == 1, InternalError, "state ", name,
                   " is element-wise and follows one that is not");
  if (is_elementwise)
    layers[0].states.push_back(name);
  else
    layers.push_back({extent, {name}});
}

}  // namespace

StateLayers layers_of(StateViews const& states) {
  StateLayers layers;
  for (auto const& state : states) add(layers, state.name, state.extent);
  return layers;
}

StateLayers layers_of(optim::OptimizerSpec const& optimizer) {
  StateLayers layers;
  add(layers, optim::master_weights_name, optim::Extent::elementwise);
  for (auto const& state : optimizer.states) add(layers, state.name, state.extent);
  return layers;
}

std::vector<zero::PartitionPlan> plans_of(zero::PartitionPlan const& plan,
                                          StateLayers const& layers) {
  std::vector<zero::PartitionPlan> plans;
  for (auto const& layer : layers) plans.push_back(plan.of_extent(layer.extent));
  return plans;
}

}  // namespace tessera::checkpoint
