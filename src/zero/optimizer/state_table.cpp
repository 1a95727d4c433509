#include "optimizer/state_table.hpp"

#include <algorithm>
#include <utility>

#include "layout/unit_views.hpp"
#include "tessera/memory/device.hpp"

namespace tessera::zero::detail {
namespace {

std::shared_ptr<PartitionPlan const> plan_of(PartitionPlan const& plan, optim::Extent extent) {
  if (extent == optim::Extent::elementwise) return {std::shared_ptr<PartitionPlan const>(), &plan};
  return std::make_shared<PartitionPlan const>(plan.of_extent(extent));
}

/// Every rank holds all values of a state per row, column or parameter, and saves its own shard.
StateLayout layout_of(StoreContext const& context, optim::StateSpec const& spec, StateHome home) {
  auto plan = plan_of(context.plan, spec.extent);
  bool const is_on_all = !optim::is_spread(spec.extent),
             is_sharded = spec.copies == optim::Copies::sharded;
  Ownership const ownership{plan.get(), context.ownership.rank,
                            (context.ownership.replicated && !is_sharded) || is_on_all};
  return {spec, std::move(plan), ownership, home};
}

/// States that are not element-wise are small, and codes are a quarter of the values: they stay in
/// memory.
StateHome home_of(EngineConfig const& config, optim::StateSpec const& spec) {
  if (spec.encoding != optim::Encoding::values) return StateHome::quantized;
  bool const is_swapped =
      settings<ShardedStates>(config).optimizer_swap && spec.extent == optim::Extent::elementwise;
  return is_swapped ? StateHome::drive : StateHome::memory;
}

bool has_home(std::vector<StateLayout> const& layouts, StateHome home) {
  return std::any_of(layouts.begin(), layouts.end(),
                     [&](StateLayout const& layout) { return layout.home == home; });
}

}  // namespace

std::vector<StateLayout> state_layouts(StoreContext const& context, StageRules const& rules,
                                       optim::OptimizerSpec const& spec) {
  optim::StateSpec const masters{optim::master_weights_name, rules.master_dtype};
  std::vector<StateLayout> out{layout_of(
      context, masters,
      rules.separate_master ? home_of(context.config, masters) : StateHome::working_weights)};
  for (auto const& state : spec.states)
    out.push_back(layout_of(context, state, home_of(context.config, state)));
  return out;
}

StateTable::StateTable(StoreContext const& context, std::vector<StateLayout> layouts,
                       WeightStore& weights, TiledUnits const& tiled,
                       StatePlacement const& placement)
    : layouts_(std::move(layouts)),
      placement_(placement),
      tiled_end_(tiled.end),
      tiled_kind_(tiled.storage) {
  auto const make = [&](UnitIndex begin, UnitIndex end, memory::MemorySpace space) {
    StorageInputs const inputs{layouts_, context.plan, weights, space};
    auto out = make_memory_storage(inputs, begin, end);
    bool const is_quantized = begin == first_unit && has_home(layouts_, StateHome::quantized);
    if (is_quantized) out = make_quantized_storage(inputs, std::move(out));
    if (begin == tiled_end_ || tiled_kind_ != StorageKind::drive) return out;
    auto swap = *settings<ShardedStates>(context.config).optimizer_swap;
    swap.tile_numel = std::max<std::int64_t>(1, tiled.tiles.largest());
    return make_drive_storage(inputs, swap, std::move(out));
  };
  UnitIndex const end = context.plan.end_unit();
  auto const slot = [&](StorageKind kind) -> auto& { return storages_[static_cast<int>(kind)]; };
  if (tiled_end_ > first_unit) slot(tiled_kind_) = make(first_unit, tiled_end_, placement_.space);
  if (tiled_end_ < end)
    slot(StorageKind::resident) = make(tiled_end_, end, memory::memory_space_of(context.compute));
}

void* StateTable::shard(std::size_t state, UnitIndex unit) const {
  auto const& layout = layouts_[state];
  return offset(storage(unit).region_outside_step(state, unit), layout.spec.dtype,
                layout.ownership.shard_offset(unit));
}

void StateTable::finish_transfers() const {
  for (auto const& storage : storages_)
    if (storage) storage->finish_transfers();
}

std::size_t StateTable::bytes(std::size_t state) const {
  std::size_t sum = 0;
  for (auto const& storage : storages_) sum += storage ? storage->bytes(state) : 0;
  return sum;
}

std::size_t StateTable::optimizer_bytes() const {
  std::size_t sum = 0;
  for (std::size_t k = master_weights + 1; k < count(); ++k) sum += bytes(k);
  return sum;
}

std::size_t StateTable::host_bytes() const {
  std::size_t sum = drive_use().buffer_bytes;
  for (auto const& storage : storages_)
    for (std::size_t k = 0; k < count(); ++k)
      if (storage && storage->space(k) == memory::MemorySpace::host) sum += storage->bytes(k);
  return sum;
}

}  // namespace tessera::zero::detail
