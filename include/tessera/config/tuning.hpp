#pragma once
/// The search for a fast configuration before the training.

#include <cstdint>

namespace tessera::config {

/// --auto_tune and --tune_minutes, and the keys of DeepSpeed's autotuning block.
struct Tuning {
  double minutes = 5.0;             ///< that the search may take
  std::int64_t warm_up_steps = 2;   ///< of a candidate, not measured
  std::int64_t measured_steps = 2;  ///< of a candidate, at least
  std::int64_t trials = 50;         ///< most candidates
  std::int64_t early_stopping = 5;  ///< kinds of candidates without improvement that end it
  std::int64_t least_micro_batch = 1, largest_micro_batch = 1024;
  bool exhaustive = false;        ///< measures every candidate that fits by the plan
  bool overwrite = true;          ///< false: takes the result of an earlier search of the same run
  double measured_seconds = 0.5;  ///< steps of a candidate are measured for so long at least
  bool operator==(Tuning const&) const = default;
};

}  // namespace tessera::config
