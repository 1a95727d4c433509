#include "tessera/kernels/gradient_statistics.hpp"

#include <deque>
#include <mutex>

#include "detail/gradient_statistics_rule.hpp"
#include "detail/launch.hpp"
#include "tessera/memory/buffer.hpp"
#include "tessera/memory/device.hpp"

namespace tessera::kernels {
namespace {

using namespace detail;

char const* const name = "tessera::kernels::gradient_statistics";

std::int64_t blocks_of(std::int64_t numel) { return (numel + gradient_block - 1) / gradient_block; }
std::int64_t blocks_of(std::vector<GradientRun> const& runs) {
  std::int64_t total = 0;
  for (auto const& run : runs) total += blocks_of(run.numel);
  return total;
}

double* reserve(memory::Buffer& buffer, std::int64_t numel, memory::MemorySpace space) {
  auto const bytes = static_cast<std::size_t>(numel) * sizeof(double);
  if (buffer.bytes() < bytes) {
    buffer = memory::Buffer();
    buffer = memory::Buffer("gradient statistics", memory::Purpose::workspace, bytes, space);
  }
  return static_cast<double*>(buffer.data());
}

/// Calls @p launch(rule, its blocks) for as few rules as hold all runs.
template <class T, class Launch>
void for_batches(std::vector<GradientRun> const& runs, double* partial, Launch const& launch) {
  SquaresOfRuns<T> batch{partial, 0, {}};
  std::int64_t blocks = 0;
  auto const flush = [&] {
    if (blocks > 0) launch(batch, blocks);
    batch.partial += blocks;
    batch.runs = 0;
    blocks = 0;
  };
  for (auto const& run : runs) {
    if (run.numel == 0) continue;
    if (batch.runs == SquaresOfRuns<T>::max_runs) flush();
    batch.run[batch.runs++] = {run.data, run.numel, blocks};
    blocks += blocks_of(run.numel);
  }
  flush();
}

/// launch(rule, rows) for the partial sums, then for their total.
template <class Launch>
void sum_squares(double* sums, double* partial, std::vector<GradientRun> const& runs, Dtype dtype,
                 Launch const& launch) {
  with_type(dtype, "gradient_statistics",
            [&](auto tag) { for_batches<typename decltype(tag)::type>(runs, partial, launch); });
  launch(TotalOfSquares{sums, partial, blocks_of(runs)}, std::int64_t{1});
}

/// The host's partial sums, kept between calls; calls take turns.
class HostSums {
 public:
  static HostSums& of_process() {
    memory::MemoryTracker::of_process();  // made first, so that it outlives the buffer
    static HostSums sums;
    return sums;
  }

  void sum(double* sums, std::vector<GradientRun> const& runs, Dtype dtype) {
    std::lock_guard const lock(mutex_);
    double* const partial = reserve(partial_, blocks_of(runs), memory::MemorySpace::host);
    sum_squares(sums, partial, runs, dtype, [](auto const& rule, std::int64_t rows) {
      launch_range(HostSpace(), name, rows, CallWithRow<std::decay_t<decltype(rule)>>{rule});
    });
  }

 private:
  std::mutex mutex_;
  memory::Buffer partial_;
};

/// The device's partial sums. Lives until the process ends: the driver may be gone before static
/// objects are. What has become too short stays, because kernels on their way may still write
/// there.
struct DeviceSums {
  std::deque<memory::Buffer> partials;

  double* partial(std::int64_t numel) {
    if (partials.empty() ||
        partials.back().bytes() < static_cast<std::size_t>(numel) * sizeof(double))
      partials.emplace_back();
    return reserve(partials.back(), numel, memory::MemorySpace::device);
  }
  static DeviceSums& of_process() {
    static DeviceSums& sums = *new DeviceSums;
    return sums;
  }
};

void sums_on_stream(Queue& q, double* sums, std::vector<GradientRun> const& runs, Dtype dtype) {
  double* const partial = DeviceSums::of_process().partial(blocks_of(runs));
  sum_squares(sums, partial, runs, dtype,
              [&](auto const& rule, std::int64_t rows) { parallel_rows(q, name, rows, rule); });
}

}  // namespace

void gradient_statistics(Queue& q, double* sums, std::vector<GradientRun> const& runs,
                         Dtype dtype) {
  if (q.kind() == QueueKind::stream) return sums_on_stream(q, sums, runs, dtype);
  if (q.kind() == QueueKind::inline_host) {
    HostSums::of_process().sum(sums, runs, dtype);
  } else {
    q.submit([sums, runs, dtype] { HostSums::of_process().sum(sums, runs, dtype); });
  }
}

}  // namespace tessera::kernels
