#include "tessera/zero/layout/parameter_subset.hpp"

#include <algorithm>

namespace tessera::zero {
namespace {

ParameterSubset select(std::vector<memory::UnitSpec> const& units, bool trains) {
  ParameterSubset out;
  for (auto const& unit : units) {
    auto& kept = out.units.emplace_back(memory::UnitSpec{unit.name, {}});
    auto& at = out.in_model.emplace_back();
    for (std::size_t p = 0; p < unit.parameters.size(); ++p) {
      if (unit.parameters[p].trains != trains) continue;
      kept.parameters.push_back(unit.parameters[p]);
      at.push_back(p);
    }
  }
  return out;
}

}  // namespace

bool ParameterSubset::empty() const {
  return std::all_of(in_model.begin(), in_model.end(),
                     [](auto const& unit) { return unit.empty(); });
}

ParameterSubset trained_parameters(std::vector<memory::UnitSpec> const& units) {
  return select(units, true);
}

ParameterSubset frozen_parameters(std::vector<memory::UnitSpec> const& units) {
  return select(units, false);
}

}  // namespace tessera::zero
