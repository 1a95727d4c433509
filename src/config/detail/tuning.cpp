#include "detail/resolvers.hpp"

#include "tessera/config/option_table.hpp"
#include "tessera/core/error.hpp"

namespace tessera::config::detail {

std::optional<Tuning> resolve_tuning(TrainingArguments const& arguments, OptionValues const& keys) {
  auto const value = [&](char const* key) -> ConfigTree const& {
    return keys.value(deepspeed_table(), concat("autotuning.", key));
  };
  if (!arguments.auto_tune && !value("enabled").as_bool()) return std::nullopt;
  Tuning out;
  out.minutes = arguments.tune_minutes;
  std::int64_t const first = value("start_profile_step").as_int(),
                     end = value("end_profile_step").as_int();
  TESSERA_VALIDATE(first < end, ConfigError, "autotuning.start_profile_step is ", first,
                   " but end_profile_step is ", end,
                   "; the steps from the first to before the second are measured, use a larger "
                   "end_profile_step");
  out.warm_up_steps = first - 1;
  out.measured_steps = end - first;
  if (keys.given("autotuning.end_profile_step")) out.measured_seconds = 0.0;
  out.trials = value("tuner_num_trials").as_int();
  out.early_stopping = value("tuner_early_stopping").as_int();
  out.least_micro_batch = value("min_train_micro_batch_size_per_gpu").as_int();
  out.largest_micro_batch = value("max_train_micro_batch_size_per_gpu").as_int();
  TESSERA_VALIDATE(out.least_micro_batch <= out.largest_micro_batch, ConfigError,
                   "autotuning.min_train_micro_batch_size_per_gpu is ", out.least_micro_batch,
                   " but max_train_micro_batch_size_per_gpu is ", out.largest_micro_batch,
                   "; raise the second");
  out.exhaustive = value("tuner_type").as_string() == "gridsearch";
  out.overwrite = value("overwrite").as_bool();
  return out;
}

}  // namespace tessera::config::detail
