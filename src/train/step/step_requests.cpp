#include "tessera/train/step/step_requests.hpp"

#include <algorithm>
#include <csignal>

#include "tessera/comm/base/collectives.hpp"
#include "tessera/core/error.hpp"
#include "tessera/train/step/stop_request.hpp"

namespace tessera::train {
namespace {

/// Places of the counts: one for each reason to stop, the highest last, then the others.
constexpr std::array stops{SIGHUP, SIGINT, SIGUSR1, SIGTERM, SIGXCPU, StopRequest::time_limit};
constexpr std::size_t save = stops.size(), disk_busy = save + 1, lock_lost = save + 2,
                      microseconds = save + 3, own_microseconds = save + 4, is_slow = save + 5;
static_assert(is_slow + 1 == zero::StepValues::count);

}  // namespace

RequestCounts counts_of(StepRequests const& mine) {
  RequestCounts out{};
  auto const stop = std::find(stops.begin(), stops.end(), mine.stop);
  TESSERA_VALIDATE(mine.stop == 0 || stop != stops.end(), InternalError, "stop request ", mine.stop,
                   " is neither a signal that stops a run nor the time limit");
  if (mine.stop != 0) out[static_cast<std::size_t>(stop - stops.begin())] = 1;
  out[save] = mine.save;
  out[disk_busy] = mine.disk_busy;
  out[lock_lost] = mine.lock_lost;
  out[microseconds] = static_cast<std::int64_t>(mine.seconds * 1e6);
  out[own_microseconds] = static_cast<std::int64_t>(mine.own_seconds * 1e6);
  out[is_slow] = mine.is_slow;
  return out;
}

StepRequests requests_of(RequestCounts const& sums, int ranks) {
  StepRequests out;
  for (std::size_t i = 0; i < stops.size(); ++i)
    if (sums[i] > 0) out.stop = stops[i];
  out.save = sums[save] > 0;
  out.disk_busy = sums[disk_busy] > 0;
  out.lock_lost = sums[lock_lost] > 0;
  out.seconds = static_cast<double>(sums[microseconds]) / 1e6 / ranks;
  out.own_seconds = static_cast<double>(sums[own_microseconds]) / 1e6 / ranks;
  out.is_slow = sums[is_slow] > 0;
  return out;
}

StepRequests agree_on_requests(comm::Collectives& comm, StepRequests const& mine) {
  auto counts = counts_of(mine);
  memory::TensorView const view(counts.data(), Dtype::int64,
                                {static_cast<std::int64_t>(counts.size())});
  comm::SynchronousCalls const synchronous;
  comm.wait(comm.all_reduce(view, comm::ReduceOp::sum, {}));
  return requests_of(counts, comm.size());
}

}  // namespace tessera::train
