#pragma once
/// The learning-rate schedule of a resolved configuration, once the number of steps is known.

#include <cstdint>
#include <optional>

#include "tessera/config/resolved_config.hpp"
#include "tessera/core/config_tree.hpp"
#include "tessera/optim/schedule.hpp"

namespace tessera::config {

/// Warm-up steps: a value below 1 is a share of all steps, rounded up.
std::int64_t warmup_steps(double value, std::int64_t total_steps);

/// The scheduler section with every "auto" filled, once the number of optimizer steps is known;
/// null if there is none.
ConfigTree scheduler_section(ResolvedConfig const& config, std::int64_t total_steps);
/// Learning rate by step: the scheduler section if there is one, else the Hugging Face schedule.
optim::Schedule learning_rate_schedule(ResolvedConfig const& config, std::int64_t total_steps);

/// beta1 by step where the scheduler cycles it; none: the optimizer's own.
/// @throws ConfigError when a step of the run would have one that is not below 1
std::optional<optim::Schedule> beta1_schedule(ConfigTree const& scheduler,
                                              std::int64_t total_steps);

}  // namespace tessera::config
