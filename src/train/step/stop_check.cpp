#include "tessera/train/step/stop_check.hpp"

#include <algorithm>
#include <utility>

#include "tessera/core/clock.hpp"

namespace tessera::train {
namespace {

constexpr double shortest_step = 1.0;       ///< seconds; a shorter step is finished
constexpr double between_questions = 0.25;  ///< seconds

}  // namespace

StopCheck::StopCheck(comm::Collectives& comm, std::function<int()> poll)
    : comm_(comm), poll_(std::move(poll)) {}

void StopCheck::begin_step(double previous_seconds) {
  started_ = Clock::now();
  std::int64_t const layers = std::exchange(calls_, 0);
  if (previous_seconds <= 0.0)
    interval_ = 1;
  else if (previous_seconds < shortest_step)
    interval_ = 0;
  else
    interval_ = std::max<std::int64_t>(
        1, static_cast<std::int64_t>(between_questions * static_cast<double>(layers) /
                                     previous_seconds));
}

void StopCheck::between_layers() {
  ++calls_;
  if (interval_ == 0 || calls_ % interval_ != 0) return;
  exchange(seconds_since(started_) >= shortest_step ? poll_() : 0);
}

void StopCheck::ask() { exchange(poll_()); }

void StopCheck::exchange(int request) {
  auto const highest =
      comm::all_reduce_value(comm_, static_cast<std::int64_t>(request), comm::ReduceOp::max);
  if (highest != 0) throw StopBetweenLayers{static_cast<int>(highest)};
}

}  // namespace tessera::train
