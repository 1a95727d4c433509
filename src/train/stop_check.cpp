#include "tessera/train/stop_check.hpp"

#include <algorithm>
#include <utility>

namespace tessera::train {
namespace {

constexpr double shortest_step = 1.0;       ///< seconds; a shorter step is finished first
constexpr double between_questions = 0.25;  ///< seconds

}  // namespace

StopCheck::StopCheck(comm::Collectives& comm, std::function<int()> poll)
    : comm_(comm), poll_(std::move(poll)) {}

void StopCheck::begin_step(double previous_seconds) {
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
  if (interval_ > 0 && calls_ % interval_ == 0) ask();
}

void StopCheck::ask() {
  auto const request =
      comm::all_reduce_value(comm_, static_cast<std::int64_t>(poll_()), comm::ReduceOp::max);
  if (request != 0) throw StopBetweenLayers{static_cast<int>(request)};
}

}  // namespace tessera::train
