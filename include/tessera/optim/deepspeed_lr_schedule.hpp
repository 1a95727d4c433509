#pragma once
/// The schedules of DeepSpeed's `scheduler` section.

#include <optional>

#include "tessera/core/config_tree.hpp"
#include "tessera/optim/schedule.hpp"

namespace tessera::optim {

/// DeepSpeed's scheduler section {type, params}: LRRangeTest, OneCycle, WarmupLR, WarmupDecayLR,
/// WarmupCosineLR. DeepSpeed's engine runs its first step at the scheduler's initial rate and the
/// k-th at the scheduler's value k-2, so a warm-up spends two steps at its minimum
/// (docs/explanation/schedules.md). @p learning_rate is the optimizer's own.
/// @throws ConfigError naming the key
Schedule deepspeed_schedule(ConfigTree const& section, double learning_rate);

/// beta1 of optimizer step k under OneCycle with cycle_momentum; none: it is the optimizer's own.
std::optional<Schedule> deepspeed_beta1_schedule(ConfigTree const& section);
/// beta2 of every step while beta1 cycles.
inline constexpr double one_cycle_beta2 = 0.99;

}  // namespace tessera::optim
