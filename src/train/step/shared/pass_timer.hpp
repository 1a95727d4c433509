#pragma once
/// Measures the parts of a step and of its units: wall_clock_breakdown and flops_profiler.

#include <array>
#include <chrono>
#include <cstdint>
#include <memory>
#include <optional>
#include <string>
#include <vector>

#include "tessera/core/config_tree.hpp"
#include "tessera/kernels/launch/kernel_times.hpp"
#include "tessera/memory/queue.hpp"
#include "tessera/train/step/outcome.hpp"

namespace tessera::train {

/// Measures while it lives; one at a time. On a GPU the kernels of a stream, which run while the
/// host is ahead: rest is what the stream idles, and what runs in device graphs.
class WorkClock {
 public:
  WorkClock();
  void begin();
  /// Since begin(). @param seconds  between the two
  WorkTimes end(double seconds);

 private:
  kernels::KernelTimes kernels_;
  double waited_before_ = 0.0;
};

struct UnitTime {
  double forward = 0.0, backward = 0.0;  ///< seconds
};

/// Follows the calls that a pass makes between its layers. Waits for the queue at each of them, so
/// that the times of a device are those of its kernels.
class PassTimer {
 public:
  /// @param blocks  of the model; its units are the embedding, the blocks and the head
  PassTimer(memory::Queue& compute, std::size_t blocks) : compute_(compute), blocks_(blocks) {}

  void begin_step();
  /// The samples of a micro-step are read; its passes follow.
  void begin_passes();
  /// See model::PassSettings::between_layers.
  void between_layers();
  void end_passes();
  void end_step();

  PhaseTimes const& phases() const { return phases_; }
  /// Returns the times of the last step in the order of the units, summed over its micro-steps.
  std::vector<UnitTime> const& units() const { return units_; }

 private:
  double lap();
  void end_segment();

  memory::Queue& compute_;
  std::size_t blocks_;
  /// Segment of the current passes: embedding, blocks, head, blocks backward
  std::size_t segment_ = 0;
  std::chrono::steady_clock::time_point last_;
  std::optional<WorkClock> work_;  ///< from the first step on: it measures every kernel
  PhaseTimes phases_;
  std::vector<UnitTime> units_;
};

}  // namespace tessera::train
