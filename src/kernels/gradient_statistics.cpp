#include <cmath>
#include <mutex>

#include "detail/gradient_statistics_rule.hpp"
#include "detail/launch.hpp"
#include "tessera/kernels/adamw.hpp"
#include "tessera/memory/buffer.hpp"

namespace tessera::kernels {
namespace {

using namespace detail;

/// Elements of one partial sum: 64 KiB of fp32, a few hundred nanoseconds of work.
constexpr std::int64_t block = 16384;
std::int64_t blocks_of(std::int64_t numel) { return (numel + block - 1) / block; }

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
    std::int64_t total = 0;
    for (auto const& run : runs) total += blocks_of(run.numel);
    double* const partial = reserve(total);
    std::int64_t at = 0;
    for (auto const& run : runs) {
      with_type(dtype, "gradient_statistics", [&](auto tag) {
        using T = typename decltype(tag)::type;
        SumOfSquares<T> const rule{partial + at, static_cast<T const*>(run.data)};
        CallWithBlock<SumOfSquares<T>> const blocks{rule, run.numel, block};
        if (run.numel > 0) launch_range(HostSpace(), "tessera::kernels::gradient_statistics", blocks_of(run.numel), blocks);
      });
      at += blocks_of(run.numel);
    }
    GradientStatistics out;
    for (std::int64_t i = 0; i < total; ++i) out.sum_of_squares += partial[i];
    out.finite = std::isfinite(out.sum_of_squares);
    return out;
  }

 private:
  double* reserve(std::int64_t numel) {
    auto const bytes = static_cast<std::size_t>(numel) * sizeof(double);
    if (buffer_.bytes() < bytes) {
      buffer_ = memory::Buffer();
      buffer_ = memory::Buffer("gradient statistics", memory::Purpose::workspace, bytes);
    }
    return static_cast<double*>(buffer_.data());
  }
  std::mutex mutex_;
  memory::Buffer buffer_;
};

}  // namespace

void gradient_statistics(Queue& q, GradientStatistics& out, std::vector<GradientRun> const& runs, Dtype dtype) {
  TESSERA_VALIDATE(q.kind() != QueueKind::stream, InternalError, "queue ", q.name(),
                   " is a device stream, and this build measures gradients on the host only");
  if (q.kind() == QueueKind::inline_host) {
    out = PartialSums::of_process().of(runs, dtype);
  } else {
    q.submit([&out, runs, dtype] { out = PartialSums::of_process().of(runs, dtype); });
  }
}

}  // namespace tessera::kernels
