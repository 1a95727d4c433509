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

namespace tessera::train {

/// Where the time of a step goes: kinds of kernels, waiting for other queues (communication that
/// nothing hides, drives, copies), and the rest (gaps between kernels, the host's own work).
struct WorkTimes {
  std::array<double, kernels::work_kinds> kernels{};  ///< seconds, by kernels::Work
  double waits = 0.0;                                 ///< waits of the thread that trains
  double rest = 0.0;

  double total() const;
  /// {"products": 0.41, ..., "waits": 0.0, "rest": 0.01}, seconds
  ConfigTree tree() const;
  /// "products 61.0 %, attention 12.1 %, ..., waits 0.4 %, rest 1.2 %"
  std::string text() const;
};

/// Measures while it lives; one at a time. On a GPU the kernels of a stream, which run while the
/// host is ahead: rest is what the stream idles, and what runs in CUDA graphs.
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

/// Seconds of one step on this rank. The head's forward pass belongs to backward, for it runs
/// together with its backward pass.
struct PhaseTimes {
  double data = 0.0;      ///< reading the samples
  double forward = 0.0;   ///< embedding and blocks
  double backward = 0.0;  ///< head, blocks and embedding
  double step = 0.0;      ///< what reduction is left, norm, update, all-gather
  WorkTimes work;         ///< the step's time by kinds of work
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
