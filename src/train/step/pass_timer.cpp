#include "tessera/train/step/pass_timer.hpp"

#include <fmt/format.h>

#include <algorithm>
#include <numeric>

#include "tessera/memory/queue.hpp"
#include "tessera/memory/runtime.hpp"

namespace tessera::train {

/// Seconds since the last call, once the queue has executed its work.
double PassTimer::lap() {
  if (compute_.kind() != memory::QueueKind::inline_host)
    (void)compute_.record().wait_for(std::chrono::hours(1));
  auto const now = std::chrono::steady_clock::now();
  double const seconds = std::chrono::duration<double>(now - last_).count();
  last_ = now;
  return seconds;
}

void PassTimer::begin_step() {
  phases_ = {};
  units_.assign(blocks_ + 2, {});
  last_ = std::chrono::steady_clock::now();
  if (!work_) work_.emplace();
  work_->begin();
}

void PassTimer::begin_passes() {
  phases_.data += lap();
  segment_ = 0;
}

void PassTimer::between_layers() { end_segment(); }
void PassTimer::end_passes() { end_segment(); }
void PassTimer::end_step() {
  phases_.step += lap();
  phases_.work = work_->end(phases_.data + phases_.forward + phases_.backward + phases_.step);
}

void PassTimer::end_segment() {
  double const seconds = lap();
  std::size_t const head = blocks_ + 1, at = segment_++;
  if (at < head) {
    phases_.forward += seconds;
    units_[at].forward += seconds;
    return;
  }
  phases_.backward += seconds;
  if (at <= head + blocks_) units_[head - (at - head)].backward += seconds;
}

double WorkTimes::total() const {
  return std::accumulate(kernels.begin(), kernels.end(), waits + rest);
}

ConfigTree WorkTimes::tree() const {
  ConfigTree out;
  for (int i = 0; i < kernels::work_kinds; ++i)
    out.set(name_of(static_cast<kernels::Work>(i)), kernels[static_cast<std::size_t>(i)]);
  return out.set("waits", waits).set("rest", rest);
}

std::string WorkTimes::text() const {
  double const all = std::max(total(), 1e-9);
  std::string out;
  for (int i = 0; i < kernels::work_kinds; ++i)
    out += fmt::format("{} {:.1f} %, ", name_of(static_cast<kernels::Work>(i)),
                       100.0 * kernels[static_cast<std::size_t>(i)] / all);
  return out +
         fmt::format("waits {:.1f} %, rest {:.1f} %", 100.0 * waits / all, 100.0 * rest / all);
}

WorkClock::WorkClock() = default;

void WorkClock::begin() {
  kernels_.take();
  waited_before_ = memory::seconds_waited();
}

WorkTimes WorkClock::end(double seconds) {
  WorkTimes out;
  for (auto const& entry : kernels_.take())
    out.kernels[static_cast<std::size_t>(entry.work)] += entry.seconds;
  // the host of a GPU is ahead of it: what it waits for is mostly the kernels
  if (memory::Runtime::device() < 0) out.waits = memory::seconds_waited() - waited_before_;
  out.rest = std::max(0.0, seconds - out.total());
  return out;
}

}  // namespace tessera::train
