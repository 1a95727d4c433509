#pragma once
/// The schedules of DeepSpeed's `scheduler` section.

#include "tessera/core/config_tree.hpp"
#include "tessera/optim/schedule.hpp"

namespace tessera::optim {

/// DeepSpeed's scheduler section {type, params}: LRRangeTest, OneCycle, WarmupLR, WarmupDecayLR,
/// WarmupCosineLR. DeepSpeed's engine runs its first step at the scheduler's initial rate and the
/// k-th at the scheduler's value k-2, so a warm-up spends two steps at its minimum
/// (docs/explanation/schedules.md). @p learning_rate is the optimizer's own.
/// @throws ConfigError naming the key
Schedule deepspeed_schedule(ConfigTree const& section, double learning_rate);

}  // namespace tessera::optim
