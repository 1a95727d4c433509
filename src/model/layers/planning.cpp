#include "layers/planning.hpp"

#include "tessera/core/rounding.hpp"

namespace tessera::model::detail {
namespace {

/// Apart from the addresses of a planning arena, and from each other: parameters that train, frozen
/// ones and copies are in buffers of their own.
constexpr std::uintptr_t weights_address = std::uintptr_t{1} << 46,
                         copies_address = std::uintptr_t{3} << 46,
                         from_trained_to_frozen = std::uintptr_t{1} << 46;
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

PlanningParams::PlanningParams(std::vector<UnitSpec> const& units, Dtype dtype,
                               std::optional<Dtype> copies)
    : units_(units), dtype_(dtype), copies_(copies), has_gradient_(units.size(), false) {}

std::vector<TensorView> PlanningParams::views_of(memory::UnitIndex unit, Dtype dtype,
                                                 std::uintptr_t address_of_first) const {
  std::vector<TensorView> out;
  std::uintptr_t trained = address_of_first, frozen = address_of_first + from_trained_to_frozen;
  for (auto const& parameter : units_[memory::position(unit)].parameters) {
    std::uintptr_t& address = parameter.trains ? trained : frozen;
    out.push_back(shaped(reinterpret_cast<void*>(address), dtype, parameter.shape));
    address +=
        static_cast<std::uintptr_t>(round_up(out.back().numel(), alignment)) * size_of(dtype);
  }
  return out;
}

WeightLease PlanningParams::acquire(memory::UnitIndex unit, Queue& /*compute*/) {
  auto const views = views_of(unit, dtype_, weights_address);
  std::vector<TensorView> copies;
  if (copies_) copies = views_of(unit, *copies_, copies_address);
  return {{views.begin(), views.end()}, {}, {copies.begin(), copies.end()}};
}

GradientLease PlanningParams::gradient(memory::UnitIndex unit, Queue& /*compute*/) {
  auto const mode =
      has_gradient_[memory::position(unit)] ? memory::WriteMode::add : memory::WriteMode::overwrite;
  has_gradient_[memory::position(unit)] = true;
  auto views = views_of(unit, dtype_, weights_address);
  auto const& parameters = units_[memory::position(unit)].parameters;
  for (std::size_t p = 0; p < views.size(); ++p)
    if (!parameters[p].trains) views[p] = {};
  return {std::move(views), mode};
}

}  // namespace tessera::model::detail
