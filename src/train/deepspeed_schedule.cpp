#include "tessera/train/deepspeed_config.hpp"

namespace tessera::train {

optim::Schedule learning_rate_schedule(ResolvedConfig const& config, std::int64_t total_steps) {
  ConfigTree const section = scheduler_section(config, total_steps);
  if (!section.is_null()) return optim::deepspeed_schedule(section, config.learning_rate);
  return optim::hf_schedule(config.lr_scheduler_type, config.learning_rate,
                            warmup_steps(config.warmup_steps, total_steps), total_steps,
                            config.lr_scheduler_kwargs);
}

}  // namespace tessera::train
