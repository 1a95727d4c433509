#pragma once
/// The schedules of Hugging Face's transformers.optimization.

#include <cstdint>
#include <string>

#include "tessera/core/config_tree.hpp"
#include "tessera/optim/schedule.hpp"

namespace tessera::optim {

/// transformers.optimization: linear, cosine, cosine_with_restarts, polynomial, constant,
/// constant_with_warmup, inverse_sqrt, cosine_with_min_lr, cosine_warmup_with_min_lr,
/// warmup_stable_decay. @p kwargs is lr_scheduler_kwargs, an object or null.
/// @throws ConfigError listing the known names or naming the key
Schedule hf_schedule(std::string const& type, double learning_rate, std::int64_t warmup_steps,
                     std::int64_t total_steps, ConfigTree const& kwargs = {});

}  // namespace tessera::optim
