#include <cmath>
#include <mutex>

#include "detail/gradient_statistics_rule.hpp"
#include "detail/launch.hpp"
#include "tessera/kernels/adamw.hpp"
#include "tessera/memory/buffer.hpp"
#include "tessera/memory/device.hpp"

namespace tessera::kernels {
namespace {

using namespace detail;

/// Elements of one partial sum: 64 KiB of fp32, a few hundred nanoseconds of work.
constexpr std::int64_t block = 16384;
std::int64_t blocks_of(std::int64_t numel) { return (numel + block - 1) / block; }

/// In order, in double.
GradientStatistics total_of(double const* partial, std::int64_t count) {
  GradientStatistics out;
  for (std::int64_t i = 0; i < count; ++i) out.sum_of_squares += partial[i];
  out.finite = std::isfinite(out.sum_of_squares);
  return out;
}

double* reserve(memory::Buffer& buffer, std::int64_t numel, memory::Tier tier) {
  auto const bytes = static_cast<std::size_t>(numel) * sizeof(double);
  if (buffer.bytes() < bytes) {
    buffer = memory::Buffer();
    buffer = memory::Buffer("gradient statistics", memory::Purpose::workspace, bytes, tier);
  }
  return static_cast<double*>(buffer.data());
}

std::int64_t blocks_of(std::vector<GradientRun> const& runs) {
  std::int64_t total = 0;
  for (auto const& run : runs) total += blocks_of(run.numel);
  return total;
}

/// Calls @p launch(tag, run, its first partial sum) for the runs that have elements.
template <class Launch>
void for_runs(std::vector<GradientRun> const& runs, Dtype dtype, double* partial, Launch&& launch) {
  for (auto const& run : runs) {
    if (run.numel > 0) with_type(dtype, "gradient_statistics", [&](auto tag) { launch(tag, run, partial); });
    partial += blocks_of(run.numel);
  }
}

/// The process's partial sums, kept between calls; calls take turns.
class PartialSums {
 public:
  static PartialSums& of_process() {
    memory::Ledger::of_process();  // made first, so that it outlives the buffer
    static PartialSums sums;
    return sums;
  }

  GradientStatistics of(std::vector<GradientRun> const& runs, Dtype dtype) {
    std::lock_guard const lock(mutex_);
    std::int64_t const total = blocks_of(runs);
    double* const partial = reserve(host_, total, memory::Tier::host);
    for_runs(runs, dtype, partial, [](auto tag, GradientRun const& run, double* to) {
      using T = typename decltype(tag)::type;
      CallWithBlock<SumOfSquares<T>> const blocks{{to, static_cast<T const*>(run.data)}, run.numel, block};
      launch_range(HostSpace(), "tessera::kernels::gradient_statistics", blocks_of(run.numel), blocks);
    });
    return total_of(partial, total);
  }

 private:
  std::mutex mutex_;
  memory::Buffer host_;
};

/// The device's partial sums and where they arrive. Lives until the process ends: the driver may be gone before static objects are.
struct DeviceSums {
  memory::Buffer device, arrived;
};

/// Kernels, one small copy, and the last sum on the host when the stream comes to it. One call at a time per process.
void statistics_on_stream(Queue& q, GradientStatistics& out, std::vector<GradientRun> const& runs, Dtype dtype) {
  static DeviceSums& sums = *new DeviceSums;
  std::int64_t const total = blocks_of(runs);
  double* const partial = reserve(sums.device, total, memory::Tier::device);
  double* const arrived = reserve(sums.arrived, total, memory::Tier::pinned);
  for_runs(runs, dtype, partial, [&](auto tag, GradientRun const& run, double* to) {
    using T = typename decltype(tag)::type;
    parallel_rows(q, "tessera::kernels::gradient_statistics", blocks_of(run.numel),
                  SumOfSquaresRows<T>{to, static_cast<T const*>(run.data), run.numel, block});
  });
  memory::copy(q, arrived, partial, static_cast<std::size_t>(total) * sizeof(double));
  q.submit([&out, arrived, total] { out = total_of(arrived, total); });
}

}  // namespace

void gradient_statistics(Queue& q, GradientStatistics& out, std::vector<GradientRun> const& runs, Dtype dtype) {
  if (q.kind() == QueueKind::stream) return statistics_on_stream(q, out, runs, dtype);
  if (q.kind() == QueueKind::inline_host) {
    out = PartialSums::of_process().of(runs, dtype);
  } else {
    q.submit([&out, runs, dtype] { out = PartialSums::of_process().of(runs, dtype); });
  }
}

}  // namespace tessera::kernels
