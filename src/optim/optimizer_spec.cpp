#include "tessera/optim/optimizer_spec.hpp"

#include <algorithm>

#include "tessera/core/error.hpp"

namespace tessera::optim {
namespace {

Hyperparameter const* find(std::vector<Hyperparameter> const& values, std::string_view name) {
  auto const it = std::find_if(values.begin(), values.end(),
                               [&](Hyperparameter const& h) { return h.name == name; });
  return it == values.end() ? nullptr : &*it;
}

bool contains(ParameterGroup const& group, WeightDecay decay) {
  if (group.members == ParameterGroup::Members::all) return true;
  return (decay == WeightDecay::applies) == (group.members == ParameterGroup::Members::decaying);
}

}  // namespace

StateSpec quantized_state(std::string name, Encoding encoding) {
  return {std::move(name), Dtype::uint8, Extent::elementwise, encoding};
}

StateSpec absmax_state(std::string const& name) {
  return {name + "_absmax", Dtype::fp32, Extent::per_chunk};
}

bool OptimizerSpec::has_codes() const {
  return std::any_of(states.begin(), states.end(),
                     [](StateSpec const& state) { return state.encoding != Encoding::values; });
}

void OptimizerSpec::set_state_dtype(Dtype dtype) {
  for (auto& state : states)
    if (state.is_plain()) state.dtype = dtype;
}

bool OptimizerSpec::has(std::string_view hyperparameter) const {
  return find(hyperparameters, hyperparameter) != nullptr;
}

double OptimizerSpec::value(std::string_view hyperparameter) const {
  auto const* found = find(hyperparameters, hyperparameter);
  TESSERA_VALIDATE(found, InternalError, "optimizer ", algorithm, " has no hyperparameter ",
                   hyperparameter);
  return found->value;
}

double OptimizerSpec::value(std::string_view hyperparameter, std::size_t group) const {
  auto const* found = find(groups.at(group).overrides, hyperparameter);
  return found ? found->value : value(hyperparameter);
}

std::size_t OptimizerSpec::group_of(WeightDecay decay) const {
  for (std::size_t g = 0; g < groups.size(); ++g)
    if (contains(groups[g], decay)) return g;
  throw InternalError(concat("optimizer ", algorithm, " has no group for parameters ",
                             decay == WeightDecay::applies ? "with" : "without", " weight decay"));
}

std::vector<std::string> OptimizerSpec::state_names() const {
  std::vector<std::string> names{master_weights_name};
  for (auto const& state : states) names.push_back(state.name);
  return names;
}

std::vector<ParameterGroup> decay_groups() {
  return {{"decay", ParameterGroup::Members::decaying, {}},
          {"no_decay", ParameterGroup::Members::not_decaying, {{"weight_decay", 0.0}}}};
}

std::vector<ParameterGroup> one_group() { return {{"all", ParameterGroup::Members::all, {}}}; }

}  // namespace tessera::optim
