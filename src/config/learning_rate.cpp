#include "tessera/config/learning_rate.hpp"

#include <algorithm>
#include <cmath>

#include "tessera/core/error.hpp"
#include "tessera/optim/schedule.hpp"

namespace tessera::config {
namespace {}  // namespace

std::int64_t warmup_steps(double value, std::int64_t total_steps) {
  return static_cast<std::int64_t>(value < 1.0 ? std::ceil(value * static_cast<double>(total_steps))
                                               : value);
}

ConfigTree scheduler_section(ResolvedConfig const& config, std::int64_t total_steps) {
  ConfigTree section = config.scheduler;
  if (!section.contains("params")) return section;
  auto& params = section["params"];
  std::int64_t const warmup =
      std::max<std::int64_t>(1, warmup_steps(config.warmup_steps, total_steps));
  if (auto const* given = params.find("total_num_steps"); given && *given == ConfigTree("auto"))
    params.set("total_num_steps", total_steps);
  auto const* given = params.find("warmup_num_steps");
  if (!given || given->is_null()) return section;
  auto const origin = config.origins.find("warmup_steps");
  bool const flag_given = origin != config.origins.end() && origin->second != Origin::default_value;
  TESSERA_VALIDATE(*given == ConfigTree("auto") || !flag_given || given->as_int() == warmup,
                   ConfigError, "scheduler.params.warmup_num_steps is ", given->dump(),
                   " but --warmup_steps or --warmup_ratio asks for ", warmup, " of ", total_steps,
                   " steps; remove one of them or set the key to \"auto\"");
  if (*given == ConfigTree("auto")) params.set("warmup_num_steps", warmup);
  return section;
}

optim::Schedule learning_rate_schedule(ResolvedConfig const& config, std::int64_t total_steps) {
  ConfigTree const section = scheduler_section(config, total_steps);
  if (!section.is_null()) return optim::deepspeed_schedule(section, config.learning_rate);
  return optim::hf_schedule(config.lr_scheduler_type, config.learning_rate,
                            warmup_steps(config.warmup_steps, total_steps), total_steps,
                            config.lr_scheduler_kwargs);
}

std::optional<optim::Schedule> beta1_schedule(ConfigTree const& scheduler,
                                              std::int64_t total_steps) {
  auto schedule = optim::deepspeed_beta1_schedule(scheduler);
  for (std::int64_t step = 1; schedule && step <= total_steps; ++step) {
    double const beta1 = (*schedule)(step);
    TESSERA_VALIDATE(beta1 >= 0.0 && beta1 < 1.0, ConfigError, "scheduler.params: beta1 of step ",
                     step, " would be ", beta1,
                     "; it must be in [0, 1): correct cycle_min_mom, cycle_max_mom and "
                     "decay_mom_rate");
  }
  return schedule;
}

}  // namespace tessera::config
