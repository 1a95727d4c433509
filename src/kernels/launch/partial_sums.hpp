#pragma once
/// Memory for the partial sums of a reduction, kept by the process between calls.

#include <cstdint>
#include <functional>
#include <mutex>
#include <utility>

#include "launch/launch.hpp"
#include "tessera/memory/buffer.hpp"

namespace tessera::kernels::detail {

/// The host's partial sums; calls are serialized.
class HostPartialSums {
 public:
  static HostPartialSums& of_process();
  /// Calls @p work with room for @p numel sums, while no other call uses it.
  void use(std::int64_t numel, std::function<void(double* partial)> const& work);

 private:
  std::mutex mutex_;
  memory::Buffer partial_;
};

/// Room for @p numel sums on the device. All streams of a process share it: if the streams differ,
/// events must order the calls. It lives until the process ends, because kernels may still write
/// there.
double* device_partial_sums(std::int64_t numel);

/// Enqueues @p work(partial, launch) with room for @p numel partial sums; launch(rule, rows) runs
/// rule(team, row) for every row. @p work is copied where the queue runs it later.
template <class Work>
void with_partial_sums(Queue& q, char const* name, std::int64_t numel, Work work) {
  if (on_device(q))
    return work(device_partial_sums(numel), [&q, name](auto const& rule, std::int64_t rows) {
      parallel_rows(q, name, rows, rule);
    });
  auto const on_host = [name, numel, work = std::move(work)] {
    HostPartialSums::of_process().use(numel, [&](double* partial) {
      work(partial, [name](auto const& rule, std::int64_t rows) {
        launch_range(HostSpace(), name, rows, CallWithRow<std::decay_t<decltype(rule)>>{rule});
      });
    });
  };
  if (q.kind() == QueueKind::inline_host)
    on_host();
  else
    q.submit(on_host);
}

}  // namespace tessera::kernels::detail
