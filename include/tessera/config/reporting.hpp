#pragma once
/// What a run writes besides its log lines and metrics.jsonl, and the search for a fast
/// configuration before it.

#include <cstdint>
#include <filesystem>
#include <optional>
#include <string>
#include <vector>

namespace tessera::config {

/// DeepSpeed's block flops_profiler.
struct FlopsProfiler {
  std::int64_t step = 1;              ///< the step that is profiled
  double recompute_factor = 0.0;      ///< forward passes that backward repeats
  std::int64_t top_units = 1;         ///< length of the list of the slowest units
  bool detailed = true;               ///< one line per unit
  std::filesystem::path output_file;  ///< empty: the log
  bool operator==(FlopsProfiler const&) const = default;
};

/// DeepSpeed's block comms_logger.
struct CommsLogger {
  bool verbose = false;                 ///< a log line for each operation
  std::vector<std::string> operations;  ///< empty: all
  bool operator==(CommsLogger const&) const = default;
};

/// What a run prints and which files of figures it writes.
struct Reporting {
  std::int64_t steps_per_print = 0;  ///< 0: only the lines of logging_steps
  bool wall_clock_breakdown = false;
  bool memory_breakdown = false;
  bool dump_state = false;
  /// Directories; empty: not written.
  std::filesystem::path tensorboard;          ///< Train/Samples/..., by samples: DeepSpeed's
  std::filesystem::path csv;                  ///< the values as CSV
  std::filesystem::path trainer_tensorboard;  ///< train/..., by steps: --report_to tensorboard
  bool wandb = false, mlflow = false;         ///< --report_to
  std::optional<FlopsProfiler> flops_profiler;
  std::optional<CommsLogger> comms_logger;
  /// Whether values are written anywhere besides metrics.jsonl.
  bool has_monitors() const {
    return !(tensorboard.empty() && csv.empty() && trainer_tensorboard.empty()) || wandb || mlflow;
  }
  bool operator==(Reporting const&) const = default;
};

/// --auto_tune and --tune_minutes, and the keys of DeepSpeed's autotuning block.
struct Tuning {
  double minutes = 5.0;             ///< that the search may take
  std::int64_t warm_up_steps = 2;   ///< warm-up steps of a candidate, not measured
  std::int64_t measured_steps = 2;  ///< measured steps of a candidate, at least
  std::int64_t trials = 50;         ///< most candidates
  std::int64_t early_stopping = 5;  ///< kinds of candidates without improvement that end it
  std::int64_t least_micro_batch = 1, largest_micro_batch = 1024;
  bool exhaustive = false;        ///< measures every candidate that fits by the plan
  bool overwrite = true;          ///< false: takes the result of an earlier search of the same run
  double measured_seconds = 0.5;  ///< steps of a candidate are measured for so long at least
  bool operator==(Tuning const&) const = default;
};

}  // namespace tessera::config
