#include "tessera/config/reporting.hpp"

#include <algorithm>

#include "tessera/config/option_table.hpp"
#include "tessera/config/resolved_config.hpp"
#include "tessera/core/error.hpp"

namespace tessera::config {
namespace {

class Keys {
 public:
  explicit Keys(DeepSpeedConfig const& config) : config_(config) {}

  /// The written value, else the default: "auto" counts as not written.
  ConfigTree const& value(std::string const& key) const {
    auto const* written = config_.find(key);
    return written ? *written : deepspeed_table().find(key)->default_value;
  }
  bool flag(std::string const& key) const { return value(key).as_bool(); }
  std::filesystem::path path(std::string const& key) const {
    auto const& given = value(key);
    return given.is_string() ? given.as_string() : std::string();
  }
  /// Directory of an enabled monitor: output_path/job_name.
  std::filesystem::path monitor(std::string const& block) const {
    if (!flag(block + ".enabled")) return {};
    return path(block + ".output_path") / value(block + ".job_name").as_string();
  }

 private:
  DeepSpeedConfig const& config_;
};

FlopsProfiler profiler(Keys const& keys) {
  std::string const p = "flops_profiler.";
  return {.step = keys.value(p + "profile_step").as_int(),
          .recompute_factor = keys.value(p + "recompute_fwd_factor").as_double(),
          .top_units = keys.value(p + "top_modules").as_int(),
          .detailed = keys.flag(p + "detailed"),
          .output_file = keys.path(p + "output_file")};
}

CommsLogger comms_logger(Keys const& keys) {
  CommsLogger out{keys.flag("comms_logger.verbose"), {}};
  if (keys.flag("comms_logger.prof_all")) return out;
  for (auto const& name : keys.value("comms_logger.prof_ops").as_array())
    out.operations.push_back(name.as_string());
  return out;
}

bool reports_to(TrainingArguments const& arguments, char const* service) {
  auto const& services = arguments.values.value(argument_table(), "report_to").as_array();
  return std::ranges::any_of(services, [&](ConfigTree const& name) {
    return name.as_string() == service || name.as_string() == "all";
  });
}

}  // namespace

Reporting reporting_of(TrainingArguments const& arguments) {
  Keys const keys(arguments.deepspeed);
  Reporting out;
  if (auto const& steps = keys.value("steps_per_print"); !steps.is_null())
    out.steps_per_print = steps.as_int();
  if (keys.flag("flops_profiler.enabled")) out.flops_profiler = profiler(keys);
  if (keys.flag("comms_logger.enabled")) out.comms_logger = comms_logger(keys);
  out.wall_clock_breakdown = keys.flag("wall_clock_breakdown") || out.flops_profiler.has_value();
  out.memory_breakdown = keys.flag("memory_breakdown");
  out.dump_state = keys.flag("dump_state");
  out.tensorboard = keys.monitor("tensorboard");
  out.csv = keys.monitor("csv_monitor");
  out.wandb = reports_to(arguments, "wandb");
  out.mlflow = reports_to(arguments, "mlflow");
  if (reports_to(arguments, "tensorboard"))
    out.trainer_tensorboard =
        arguments.logging_dir.empty() ? arguments.output_dir / "runs" : arguments.logging_dir;
  return out;
}

std::optional<Tuning> tuning_of(TrainingArguments const& arguments) {
  auto const value = [&](char const* key) -> ConfigTree const& {
    return arguments.deepspeed.value(concat("autotuning.", key));
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
  if (arguments.deepspeed.keys.given("autotuning.end_profile_step")) out.measured_seconds = 0.0;
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

}  // namespace tessera::config
