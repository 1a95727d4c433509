#include "layers/planning.hpp"

#include "tessera/core/rounding.hpp"

namespace tessera::model::detail {
namespace {

/// Apart from the addresses of a planning arena.
constexpr std::uintptr_t address_of_parameters = std::uintptr_t{1} << 46;

TensorView shaped(void* data, Dtype dtype, std::vector<std::int64_t> const& dims) {
  auto const dim = [&](std::size_t i) { return i < dims.size() ? dims[i] : 1; };
  switch (dims.size()) {
    case 0:
    case 1:
      return {data, dtype, {dim(0)}};
    case 2:
      return {data, dtype, {dim(0), dim(1)}};
    case 3:
      return {data, dtype, {dim(0), dim(1), dim(2)}};
    default:
      return {data, dtype, {dim(0), dim(1), dim(2), dim(3)}};
  }
}

}  // namespace

PlanningParams::PlanningParams(std::vector<UnitSpec> const& units, Dtype dtype)
    : units_(units), dtype_(dtype), has_gradient_(units.size(), false) {}

std::vector<TensorView> PlanningParams::views_of(memory::UnitIndex unit) const {
  std::vector<TensorView> out;
  std::uintptr_t address = address_of_parameters;
  for (auto const& parameter : units_[memory::position(unit)].parameters) {
    out.push_back(shaped(reinterpret_cast<void*>(address), dtype_, parameter.shape));
    address += round_up(out.back().bytes(), std::size_t{64});
  }
  return out;
}

WeightLease PlanningParams::acquire(memory::UnitIndex unit, Queue& /*compute*/) {
  auto const views = views_of(unit);
  return {{views.begin(), views.end()}, {}};
}

GradientLease PlanningParams::gradient(memory::UnitIndex unit, Queue& /*compute*/) {
  auto const mode =
      has_gradient_[memory::position(unit)] ? memory::WriteMode::add : memory::WriteMode::overwrite;
  has_gradient_[memory::position(unit)] = true;
  auto views = views_of(unit);
  auto const& parameters = units_[memory::position(unit)].parameters;
  for (std::size_t p = 0; p < views.size(); ++p)
    if (!parameters[p].trains) views[p] = {};
  return {std::move(views), mode};
}

}  // namespace tessera::model::detail
