#include "layers/planning.hpp"

#include "tessera/core/rounding.hpp"

namespace tessera::model::detail {
namespace {

/// Apart from the addresses of a planning arena, and from each other: parameters that train and
/// frozen ones are in buffers of their own.
constexpr std::uintptr_t trained_address = std::uintptr_t{1} << 46,
                         frozen_address = std::uintptr_t{1} << 47;
/// Elements; as a zero::PartitionPlan lays parameters out.
constexpr std::int64_t alignment = 32;

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
  std::uintptr_t trained = trained_address, frozen = frozen_address;
  for (auto const& parameter : units_[memory::position(unit)].parameters) {
    std::uintptr_t& address = parameter.trains ? trained : frozen;
    out.push_back(shaped(reinterpret_cast<void*>(address), dtype_, parameter.shape));
    address +=
        static_cast<std::uintptr_t>(round_up(out.back().numel(), alignment)) * size_of(dtype_);
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
