#pragma once
/// Progress on standard error: one log line per logging_steps, and on a terminal a status line that
/// is redrawn in place.

#include <chrono>
#include <cstdint>

#include "tessera/core/status_line.hpp"

namespace tessera::train {

class Progress {
 public:
  enum class Output { log, none };
  Progress(Output output, std::int64_t total_steps);
  struct Sample {
    std::int64_t step = 0;
    double loss = 0.0;  ///< mean since the last line
    double grad_norm = 0.0;
    double learning_rate = 0.0;
    double tokens_per_second = 0.0;
    double loss_scale = 1.0;
    bool show_loss_scale = false;
    std::int64_t skipped_steps = 0;  ///< skipped steps of the run so far; 0 is not shown
  };
  void log_line(Sample const& sample);
  void update_status_line(std::int64_t step);
  /// Removes the status line; call it before any other output.
  void clear();

 private:
  double seconds_left(std::int64_t step) const;
  Output output_;
  StatusLine status_line_;
  std::int64_t total_steps_;
  std::int64_t first_step_ = -1;
  std::chrono::steady_clock::time_point started_;
};

}  // namespace tessera::train
