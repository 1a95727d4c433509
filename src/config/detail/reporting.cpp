#include "detail/resolvers.hpp"

#include <algorithm>

#include "tessera/config/option_table.hpp"

namespace tessera::config::detail {
namespace {

class Keys {
 public:
  explicit Keys(OptionValues const& values) : values_(values) {}

  /// The written value, else the default: "auto" counts as not written.
  ConfigTree const& value(std::string const& key) const {
    auto const& given = values_.value(deepspeed_table(), key);
    bool const is_auto = given.is_string() && given.as_string() == "auto";
    return is_auto ? deepspeed_table().find(key)->default_value : given;
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
  OptionValues const& values_;
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

bool reports_to_tensorboard(TrainingArguments const& arguments) {
  auto const& services = arguments.values.value(argument_table(), "report_to").as_array();
  return std::ranges::any_of(services, [](ConfigTree const& name) {
    return name.as_string() == "tensorboard" || name.as_string() == "all";
  });
}

}  // namespace

Reporting resolve_reporting(TrainingArguments const& arguments, OptionValues const& values) {
  Keys const keys(values);
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
  if (reports_to_tensorboard(arguments))
    out.trainer_tensorboard =
        arguments.logging_dir.empty() ? arguments.output_dir / "runs" : arguments.logging_dir;
  return out;
}

}  // namespace tessera::config::detail
