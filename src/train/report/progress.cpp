#include "tessera/train/report/progress.hpp"

#include <fmt/format.h>

#include <cmath>
#include <string>

#include "tessera/core/clock.hpp"
#include "tessera/core/log.hpp"
#include "tessera/core/text.hpp"

namespace tessera::train {

Progress::Progress(Output output, std::int64_t total_steps)
    : output_(output), total_steps_(total_steps), started_(std::chrono::steady_clock::now()) {}

double Progress::seconds_left(std::int64_t step) const {
  std::int64_t const done = step - first_step_;
  return done > 0 ? seconds_since(started_) / static_cast<double>(done) *
                        static_cast<double>(total_steps_ - step)
                  : NAN;
}

void Progress::log_line(Sample const& s) {
  if (first_step_ < 0) first_step_ = s.step - 1;
  if (output_ == Output::none) return;
  clear();
  auto const digits = std::to_string(total_steps_).size();
  std::string scale = s.show_loss_scale ? fmt::format("  scale {:g}", s.loss_scale) : "";
  if (s.skipped_steps > 0) scale += fmt::format("  skipped {}", s.skipped_steps);
  log::info(fmt::format(
      "step {:>{}}/{}  loss {}  grad_norm {}  lr {:.3e}  {:.0f} tokens/s{}  left {}", s.step,
      digits, total_steps_, fixed_text(s.loss, 4), fixed_text(s.grad_norm, 3), s.learning_rate,
      s.tokens_per_second, scale, human_duration(seconds_left(s.step))));
}

void Progress::update_status_line(std::int64_t step) {
  if (first_step_ < 0) first_step_ = step - 1;
  if (output_ == Output::none) return;
  status_line_.show(fmt::format("  step {}/{}, left {} ", step, total_steps_,
                                human_duration(seconds_left(step))));
}

void Progress::clear() { status_line_.clear(); }

}  // namespace tessera::train
