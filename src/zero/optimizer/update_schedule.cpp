#include "optimizer/update_schedule.hpp"

namespace tessera::zero::detail {
TiledUnits tiled_units(StoreContext const& context, optim::Optimizer const& optimizer,
                       UnitIndex host_end) {
  bool const swaps = settings<ShardedStates>(context.config).optimizer_swap.has_value();
  UnitIndex const end = swaps ? context.plan.end_unit() : host_end;
  return {end, region_tiles(context, optimizer, end),
          swaps ? StorageKind::drive : StorageKind::host,
          host_end > first_unit ? UpdateQueue::worker : UpdateQueue::compute};
}

UpdateSchedule::UpdateSchedule(std::vector<std::int64_t> const& region_numel,
                               TiledUnits const& tiled) {
  auto const units = static_cast<int>(region_numel.size());
  for (UnitIndex unit = first_unit; unit < UnitIndex(units); ++unit) {
    first_.push_back(steps_.size());
    if (unit < tiled.end)
      for (std::size_t t = tiled.tiles.first(unit); t < tiled.tiles.end(unit); ++t)
        steps_.push_back({steps_.size(), tiled.tiles[t], tiled.storage, tiled.queue});
    else
      steps_.push_back({steps_.size(), {unit, 0, region_numel[position(unit)]}});
  }
  first_.push_back(steps_.size());
}

}  // namespace tessera::zero::detail
