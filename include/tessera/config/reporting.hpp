#pragma once
/// What a run writes besides its log lines and metrics.jsonl.

#include <cstdint>
#include <filesystem>
#include <optional>
#include <string>
#include <vector>

namespace tessera::config {

struct FlopsProfiler {
  std::int64_t step = 1;              ///< the step that is profiled
  double recompute_factor = 0.0;      ///< forward passes that backward repeats
  std::int64_t top_units = 1;         ///< length of the list of the slowest units
  bool detailed = true;               ///< one line per unit
  std::filesystem::path output_file;  ///< empty: the log
  bool operator==(FlopsProfiler const&) const = default;
};

struct CommsLogger {
  bool verbose = false;                 ///< a log line for each operation
  std::vector<std::string> operations;  ///< empty: all
  bool operator==(CommsLogger const&) const = default;
};

struct Reporting {
  std::int64_t steps_per_print = 0;  ///< 0: only the lines of logging_steps
  bool wall_clock_breakdown = false;
  bool memory_breakdown = false;
  bool dump_state = false;
  /// Directories; empty: not written.
  std::filesystem::path tensorboard;          ///< Train/Samples/..., by samples: DeepSpeed's
  std::filesystem::path csv;                  ///< the same values
  std::filesystem::path trainer_tensorboard;  ///< train/..., by steps: --report_to tensorboard
  std::optional<FlopsProfiler> flops_profiler;
  std::optional<CommsLogger> comms_logger;
  bool operator==(Reporting const&) const = default;
};

}  // namespace tessera::config
