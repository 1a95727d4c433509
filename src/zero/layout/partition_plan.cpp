#include "tessera/zero/layout/partition_plan.hpp"

#include <algorithm>
#include <functional>

#include "tessera/core/error.hpp"
#include "tessera/core/rounding.hpp"
#include "tessera/kernels/optimizer/quantized_values.hpp"

namespace tessera::zero {
namespace {

void check_owners(UnitLayout const& unit, int ranks) {
  auto const& owners = unit.owners;
  bool const ascend =
      std::adjacent_find(owners.begin(), owners.end(), std::greater_equal<>()) == owners.end();
  TESSERA_VALIDATE(
      owners.empty() || (ascend && owners.front() >= first_rank && owners.back() < Rank(ranks)),
      InternalError, "the owners of unit ", unit.name, " are no ascending ranks of a plan for ",
      ranks);
}

UnitLayout lay_out(memory::UnitSpec const& spec, std::vector<Rank> const& owners, int ranks,
                   std::int64_t alignment) {
  UnitLayout unit;
  unit.name = spec.name;
  unit.owners = owners;
  check_owners(unit, ranks);
  if (static_cast<int>(owners.size()) == ranks) unit.owners.clear();
  if (!owners.empty()) ranks = static_cast<int>(owners.size());
  std::int64_t end = 0;
  for (auto const& p : spec.parameters) {
    TESSERA_VALIDATE(p.numel() > 0, InternalError, "parameter ", p.name, " has ", p.numel(),
                     " elements");
    unit.parameters.push_back({p.name, p.shape, UnitOffset(end), p.numel(), p.decays});
    unit.numel += p.numel();
    end = round_up(end + p.numel(), alignment);
  }
  unit.shard_numel = round_up(ceil_divide(end, ranks), alignment);
  unit.padded_numel = unit.shard_numel * ranks;
  return unit;
}

}  // namespace

PartitionPlan::PartitionPlan(std::vector<memory::UnitSpec> const& units, int ranks,
                             std::int64_t alignment)
    : PartitionPlan(units, ranks, std::vector<std::vector<Rank>>(units.size()), alignment) {}

PartitionPlan::PartitionPlan(std::vector<memory::UnitSpec> const& units, int ranks,
                             std::vector<std::vector<Rank>> const& owners, std::int64_t alignment)
    : ranks_(ranks), alignment_(alignment) {
  TESSERA_VALIDATE(ranks > 0 && alignment > 0, InternalError, "cannot partition over ", ranks,
                   " ranks with alignment ", alignment);
  TESSERA_VALIDATE(owners.size() == units.size(), InternalError, "owners of ", owners.size(),
                   " units for a plan of ", units.size());
  for (std::size_t u = 0; u < units.size(); ++u) {
    UnitLayout unit = lay_out(units[u], owners[u], ranks, alignment);
    unit.partition_offset = PartitionOffset(partition_numel_);
    partition_numel_ += unit.shard_numel;
    parameter_count_ += unit.numel;
    units_.push_back(std::move(unit));
  }
}

std::vector<std::int64_t> state_shape(std::vector<std::int64_t> const& shape,
                                      optim::Extent extent) {
  std::int64_t const rows = shape.empty() ? 1 : shape[0];
  switch (extent) {
    case optim::Extent::elementwise:
      return shape;
    case optim::Extent::per_row:
      return {rows};
    case optim::Extent::per_column: {
      std::int64_t columns = 1;
      for (std::size_t i = 1; i < shape.size(); ++i) columns *= shape[i];
      return {columns};
    }
    case optim::Extent::scalar:
      return {1};
    case optim::Extent::per_chunk: {
      std::int64_t elements = 1;
      for (auto const n : shape) elements *= n;
      return {ceil_divide(elements, kernels::quantization_chunk)};
    }
  }
  return shape;
}

std::int64_t alignment_for(optim::OptimizerSpec const& optimizer) {
  bool const has_chunks =
      std::any_of(optimizer.states.begin(), optimizer.states.end(),
                  [](auto const& state) { return state.extent == optim::Extent::per_chunk; });
  return has_chunks ? kernels::quantization_chunk : PartitionPlan::default_alignment;
}

PartitionPlan PartitionPlan::of_extent(optim::Extent extent) const {
  bool const per_chunk = extent == optim::Extent::per_chunk;
  TESSERA_VALIDATE(!per_chunk || alignment_ % kernels::quantization_chunk == 0, InternalError,
                   "a plan with alignment ", alignment_, " has no states per chunk of ",
                   kernels::quantization_chunk, " elements; make it with alignment_for()");
  std::vector<memory::UnitSpec> units;
  std::vector<std::vector<Rank>> owners;
  for (auto const& unit : units_) {
    owners.push_back(unit.owners);
    memory::UnitSpec spec{unit.name, {}};
    for (auto const& p : unit.parameters)
      spec.parameters.push_back({p.name, state_shape(p.shape, extent), {}, p.decays, {}});
    units.push_back(std::move(spec));
  }
  return {units, ranks_, owners, per_chunk ? alignment_ / kernels::quantization_chunk : alignment_};
}

std::int64_t PartitionPlan::largest_unit() const {
  std::int64_t largest = 0;
  for (auto const& unit : units_) largest = std::max(largest, unit.padded_numel);
  return largest;
}

std::vector<ShardExtent> PartitionPlan::extents(Rank rank) const {
  std::vector<ShardExtent> out;
  for (UnitIndex u = first_unit; u < end_unit(); ++u) {
    auto const& unit = this->unit(u);
    if (!unit.is_on(rank)) continue;
    UnitOffset const begin = unit.unit_offset(rank, ShardOffset(0)), end = begin + unit.shard_numel;
    for (int p = 0; p < static_cast<int>(unit.parameters.size()); ++p) {
      auto const& slot = unit.parameters[static_cast<std::size_t>(p)];
      UnitOffset const first = std::max(begin, slot.offset), last = std::min(end, slot.end());
      if (first < last)
        out.push_back({u, p, slot.parameter_offset(first),
                       unit.partition_offset_of(unit.shard_offset(rank, first)), last - first});
    }
  }
  return out;
}

}  // namespace tessera::zero
