#include "layout/offload.hpp"

#include <algorithm>
#include <limits>

#include "tessera/core/error.hpp"
#include "tessera/core/rounding.hpp"
#include "tessera/optim/matrix_optimizer.hpp"
#include "tessera/optim/summing_optimizer.hpp"

namespace tessera::zero::detail {
namespace {

OptimizerOffload options_of(EngineConfig const& config, optim::Optimizer const& optimizer) {
  OptimizerOffload out = config.optimizer_offload.value_or(OptimizerOffload{});
  if (auto const& swap = config.optimizer_swap) {
    out.tile_numel = swap->tile_numel;
    out.buffer_count = swap->buffer_count;
  }
  bool const takes_matrices = dynamic_cast<optim::MatrixOptimizer const*>(&optimizer);
  bool const takes_sums = dynamic_cast<optim::SummingOptimizer const*>(&optimizer);
  bool const swaps_sums = takes_sums && config.optimizer_swap;  // their tiles are complete regions
  if (takes_matrices || swaps_sums) out.tile_numel = std::numeric_limits<std::int64_t>::max();
  TESSERA_VALIDATE(out.ratio == 1.0 || !(takes_matrices || takes_sums), ConfigError,
                   "offload_optimizer.ratio is ", out.ratio, " with ", config.optimizer.algorithm,
                   ", whose update needs complete parameters; leave ratio out");
  TESSERA_VALIDATE(out.delay_from == 0 || !(takes_matrices || takes_sums), ConfigError,
                   "the delayed update with ", config.optimizer.algorithm,
                   ", whose update needs complete parameters of all ranks; use AdamW, Lion or "
                   "another element-wise optimizer, or leave --delayed_update_from_step out");
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

std::vector<std::int64_t> region_numel(StoreContext const& context, UnitIndex end) {
  std::vector<std::int64_t> out;
  for (UnitIndex u = first_unit; u < end; ++u) out.push_back(context.ownership.numel(u));
  return out;
}

/// Tiles are not longer than the longest region.
std::int64_t tile_numel(StoreContext const& context, std::int64_t most) {
  std::int64_t longest = 1;
  for (std::int64_t numel : region_numel(context, context.plan.end_unit()))
    longest = std::max(longest, numel);
  return std::min(most, longest);
}

}  // namespace

TileList::TileList(std::vector<std::int64_t> const& region_numel, std::int64_t most) {
  std::int64_t const step = round_up(std::max<std::int64_t>(most, 1), alignment);
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
  auto const options = options_of(context.config, optimizer);
  end = end_of_offload(context, options.ratio);
  tiles = {region_numel(context, end), tile_numel(context, options.tile_numel)};
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
