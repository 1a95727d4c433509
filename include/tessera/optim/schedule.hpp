#pragma once
/// A learning-rate schedule as a value: step number in, rate out.

#include <cstdint>
#include <functional>
#include <optional>
#include <string>

#include "tessera/core/config_tree.hpp"

namespace tessera::optim {

/// Learning rate used by optimizer step k = 1, 2, ... (schedules are evaluated at k-1, as torch's
/// LambdaLR under HF's Trainer).
using Schedule = std::function<double(std::int64_t step)>;

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

/// transformers.optimization: linear, cosine, cosine_with_restarts, polynomial, constant,
/// constant_with_warmup, inverse_sqrt, cosine_with_min_lr, cosine_warmup_with_min_lr,
/// warmup_stable_decay. @p kwargs is lr_scheduler_kwargs, an object or null.
/// @throws ConfigError listing the known names or naming the key
Schedule hf_schedule(std::string const& type, double learning_rate, std::int64_t warmup_steps,
                     std::int64_t total_steps, ConfigTree const& kwargs = {});

}  // namespace tessera::optim
