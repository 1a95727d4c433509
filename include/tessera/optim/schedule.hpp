#pragma once
/// Learning-rate schedules as values: step number in, rate out.

#include <cstdint>
#include <functional>
#include <string>

#include "tessera/core/config_tree.hpp"

namespace tessera::optim {

/// Learning rate used by optimizer step k = 1, 2, ... (schedules are evaluated at k-1, as torch's LambdaLR under HF's Trainer).
using Schedule = std::function<double(std::int64_t step)>;

/// transformers.optimization: linear, cosine, cosine_with_restarts, polynomial, constant, constant_with_warmup, inverse_sqrt.
/// @throws ConfigError listing the known names
Schedule hf_schedule(std::string const& type, double learning_rate, std::int64_t warmup_steps, std::int64_t total_steps);

/// DeepSpeed's scheduler section {type, params}: LRRangeTest, OneCycle, WarmupLR, WarmupDecayLR, WarmupCosineLR.
/// @throws ConfigError naming the key
Schedule deepspeed_schedule(ConfigTree const& section, double learning_rate);

}  // namespace tessera::optim
