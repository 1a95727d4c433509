#include "tessera/zero/layout/parameter_subset.hpp"

#include <algorithm>

namespace tessera::zero {
namespace {

template <class Is>
ParameterSubset select(std::vector<memory::UnitSpec> const& units, Is const& is_selected) {
  ParameterSubset out;
  for (auto const& unit : units) {
    auto& kept = out.units.emplace_back(memory::UnitSpec{unit.name, {}});
    auto& at = out.in_model.emplace_back();
    for (std::size_t p = 0; p < unit.parameters.size(); ++p) {
      if (!is_selected(unit, unit.parameters[p])) continue;
      kept.parameters.push_back(unit.parameters[p]);
      at.push_back(p);
    }
  }
  return out;
}

ParameterSubset of_kind(std::vector<memory::UnitSpec> const& units, bool trains) {
  return select(units, [&](auto const&, auto const& p) { return p.trains == trains; });
}

ParameterSubset frozen_kept_as(std::vector<memory::UnitSpec> const& units, bool as_codes) {
  return select(units, [&](auto const& unit, auto const& p) {
    bool const in_block = &unit != &units.front() && &unit != &units.back();
    return !p.trains && (in_block && p.shape.size() == 2) == as_codes;
  });
}

}  // namespace

bool ParameterSubset::empty() const {
  return std::all_of(in_model.begin(), in_model.end(),
                     [](auto const& unit) { return unit.empty(); });
}

ParameterSubset trained_parameters(std::vector<memory::UnitSpec> const& units) {
  return of_kind(units, true);
}

ParameterSubset frozen_parameters(std::vector<memory::UnitSpec> const& units) {
  return of_kind(units, false);
}

ParameterSubset quantized_parameters(std::vector<memory::UnitSpec> const& units) {
  return frozen_kept_as(units, true);
}

ParameterSubset unquantized_parameters(std::vector<memory::UnitSpec> const& units) {
  return frozen_kept_as(units, false);
}

}  // namespace tessera::zero
