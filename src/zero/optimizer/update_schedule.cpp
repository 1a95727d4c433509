#include "optimizer/update_schedule.hpp"

#include <algorithm>

#include "tessera/core/error.hpp"
#include "tessera/optim/matrix_optimizer.hpp"
#include "tessera/optim/summing_optimizer.hpp"

namespace tessera::zero::detail {
namespace {

/// A part of the units on the device, and updates that are completed a step later.
void validate_host_update(EngineConfig const& config, optim::Optimizer const& optimizer) {
  auto const offload = config.optimizer_offload.value_or(OptimizerOffload{});
  bool const needs_parameters = dynamic_cast<optim::MatrixOptimizer const*>(&optimizer) ||
                                dynamic_cast<optim::SummingOptimizer const*>(&optimizer);
  TESSERA_VALIDATE(offload.ratio == 1.0 || !needs_parameters, ConfigError,
                   "offload_optimizer.ratio is ", offload.ratio, " with ",
                   config.optimizer.algorithm,
                   ", whose update needs complete parameters; leave ratio out");
  TESSERA_VALIDATE(offload.delay_from == 0 || !needs_parameters, ConfigError,
                   "the delayed update with ", config.optimizer.algorithm,
                   ", whose update needs complete parameters of all ranks; use AdamW, Lion or "
                   "another element-wise optimizer, or leave the delayed update out");
}

/// A drive holds element-wise states of fp32.
void validate_drive(EngineConfig const& config, StageRules const& rules,
                    optim::OptimizerSpec const& spec) {
  for (auto const& state : spec.states)
    TESSERA_VALIDATE(state.encoding != optim::Encoding::values || state.dtype == Dtype::fp32,
                     ConfigError, "offload_optimizer to NVMe with ", spec.algorithm,
                     ": its states of 16 bits stay in memory; use fp32 states");
  TESSERA_VALIDATE(config.stage > 0, ConfigError,
                   "offload_optimizer to NVMe needs ZeRO stage 1, 2 or 3");
  TESSERA_VALIDATE(
      !rules.offloads_optimizer || config.master_dtype == Dtype::fp32, ConfigError,
      "offload_optimizer from a device to NVMe with ", name_of(config.master_dtype),
      " master weights, which a drive does not hold; use fp32 master weights, or device \"cpu\"");
  bool const has_states =
      rules.separate_master || std::any_of(spec.states.begin(), spec.states.end(),
                                           [](optim::StateSpec const& s) { return s.is_plain(); });
  TESSERA_VALIDATE(has_states, ConfigError, "offload_optimizer to NVMe with ", spec.algorithm,
                   " and fp32 weights: no state of it goes to a drive; leave offload_optimizer "
                   "out, or use bf16 or fp16");
}

}  // namespace

TiledUnits tiled_units(StoreContext const& context, optim::Optimizer const& optimizer,
                       UnitIndex host_end) {
  bool const swaps = context.config.optimizer_swap.has_value();
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

void validate_update(EngineConfig const& config, StageRules const& rules,
                     optim::Optimizer const& optimizer) {
  if (rules.offloads_optimizer) validate_host_update(config, optimizer);
  if (config.optimizer_swap) validate_drive(config, rules, optimizer.spec());
}

}  // namespace tessera::zero::detail
