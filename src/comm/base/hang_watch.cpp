#include "base/hang_watch.hpp"

#include <unistd.h>

#include <algorithm>
#include <utility>

#include "tessera/comm/base/flight_recorder.hpp"
#include "tessera/core/error.hpp"
#include "tessera/core/log.hpp"
#include "tessera/core/process.hpp"

namespace tessera::comm::detail {
namespace {

using namespace std::chrono_literals;

std::int64_t now() {
  return std::chrono::duration_cast<std::chrono::milliseconds>(
             std::chrono::steady_clock::now().time_since_epoch())
      .count();
}

}  // namespace

HangWatch::HangWatch(std::chrono::milliseconds limit, OnHang on_hang)
    : limit_(limit), on_hang_(std::move(on_hang)), thread_([this] { run(); }) {}

HangWatch::~HangWatch() {
  ends_ = true;
  thread_.join();
}

HangWatch::Inside::Inside(HangWatch& watch, Watched thread)
    : since_(watch.since_[static_cast<std::size_t>(thread)]), before_(since_.exchange(now())) {}
HangWatch::Inside::~Inside() { since_ = before_; }

void HangWatch::run() {
  auto const interval = std::clamp<std::chrono::milliseconds>(limit_ / 10, 5ms, 200ms);
  while (!ends_) {
    std::this_thread::sleep_for(interval);
    for (auto const& since : since_) {
      std::int64_t const began = since;
      if (began == 0 || now() - began <= limit_.count()) continue;
      return on_hang_(concat("a call of NCCL or the device runtime on ", host_name(),
                             " has not returned for ", now() - began,
                             " ms; the driver, the device or a link hangs (dmesg "
                             "lists Xid errors; NCCL_DEBUG=INFO shows what NCCL was doing)"));
    }
  }
}

void end_after_hang(std::string const& problem) {
  log::error(problem);
  FlightRecorder::of_process().write(problem);
  _exit(static_cast<int>(ExitCode::peer_lost));
}

}  // namespace tessera::comm::detail
