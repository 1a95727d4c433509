#include "layout/offload.hpp"

#include <algorithm>
#include <limits>

#include "tessera/core/rounding.hpp"
#include "tessera/optim/matrix_optimizer.hpp"
#include "tessera/optim/summing_optimizer.hpp"

namespace tessera::zero::detail {
namespace {

OptimizerOffload options_of(EngineConfig const& config) {
  auto const& states = settings<ShardedStates>(config);
  OptimizerOffload out = states.optimizer_offload.value_or(OptimizerOffload{});
  if (auto const& swap = states.optimizer_swap) {
    out.tile_numel = swap->tile_numel;
    out.buffer_count = swap->buffer_count;
  }
  return out;
}

/// The fewest units that have the wanted part of all elements.
UnitIndex end_of_offload(StoreContext const& context, double ratio) {
  auto const& ownership = context.ownership;
  double const wanted = ratio * static_cast<double>(ownership.state_numel());
  double sum = 0.0;
  UnitIndex unit = first_unit;
  for (; unit < context.plan.end_unit() && sum < wanted; ++unit)
    sum += static_cast<double>(ownership.numel(unit));
  return unit;
}

}  // namespace

std::vector<std::int64_t> region_numel(StoreContext const& context, UnitIndex end) {
  std::vector<std::int64_t> out;
  for (UnitIndex u = first_unit; u < end; ++u) out.push_back(context.ownership.numel(u));
  return out;
}

TileList region_tiles(StoreContext const& context, optim::Optimizer const& optimizer,
                      UnitIndex end) {
  bool const takes_matrices = dynamic_cast<optim::MatrixOptimizer const*>(&optimizer),
             takes_sums = dynamic_cast<optim::SummingOptimizer const*>(&optimizer),
             is_complete = takes_matrices ||
                           (takes_sums && settings<ShardedStates>(context.config).optimizer_swap);
  return {region_numel(context, end), is_complete ? std::numeric_limits<std::int64_t>::max()
                                                  : options_of(context.config).tile_numel};
}

TileList::TileList(std::vector<std::int64_t> const& region_numel, std::int64_t max_numel) {
  std::int64_t longest = 1;
  for (std::int64_t const numel : region_numel) longest = std::max(longest, numel);
  std::int64_t const step = round_up(std::clamp<std::int64_t>(max_numel, 1, longest), alignment);
  for (std::size_t u = 0; u < region_numel.size(); ++u) {
    first_.push_back(tiles_.size());
    for (std::int64_t begin = 0; begin < region_numel[u]; begin += step)
      tiles_.push_back(
          {UnitIndex(static_cast<int>(u)), begin, std::min(step, region_numel[u] - begin)});
  }
  first_.push_back(tiles_.size());
}

std::int64_t TileList::largest() const {
  std::int64_t out = 0;
  for (auto const& tile : tiles_) out = std::max(out, tile.numel);
  return out;
}

Offload::Offload(StoreContext const& context, StageRules const& rules,
                 optim::Optimizer const& optimizer)
    : tiles({}, 1) {
  if (!rules.offloads_optimizer) return;
  auto const options = options_of(context.config);
  end = end_of_offload(context, options.ratio);
  tiles = region_tiles(context, optimizer, end);
  delay_from = options.delay_from;
  buffer_count = delay_from > 0 ? static_cast<int>(tiles.size()) : options.buffer_count;
  space = options.space;
}

std::int64_t Offload::numel(Ownership const& ownership) const {
  std::int64_t sum = 0;
  for (UnitIndex u = first_unit; u < end; ++u) sum += ownership.numel(u);
  return sum;
}

}  // namespace tessera::zero::detail
