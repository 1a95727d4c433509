#include "tessera/train/step/pass_timer.hpp"

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

}  // namespace tessera::train
