#include "tessera/train/step/stop_request.hpp"

#include <pthread.h>
#include <signal.h>
#include <unistd.h>

#include <algorithm>
#include <atomic>
#include <chrono>
#include <mutex>
#include <thread>
#include <utility>

#include "tessera/core/clock.hpp"

namespace tessera::train {
namespace {

std::atomic<int> requested{0};
std::atomic<bool> save_requested{false};
std::mutex last_words_mutex;
std::function<void(int)> last_words;

sigset_t stop_signals() {
  sigset_t set;
  sigemptyset(&set);
  for (int s : {SIGTERM, SIGINT, SIGUSR1, SIGUSR2, SIGXCPU, SIGHUP}) sigaddset(&set, s);
  return set;
}

/// Restores the default action of the signal and raises it again.
void end_immediately(int signal_number) {
  {
    std::lock_guard const lock(last_words_mutex);
    if (last_words) last_words(signal_number);
  }
  ::signal(signal_number, SIG_DFL);
  sigset_t const set = stop_signals();
  pthread_sigmask(SIG_UNBLOCK, &set, nullptr);
  ::kill(::getpid(), signal_number);
}

/// Slurm and mpirun often send the same signal twice within milliseconds, so a repeated signal ends
/// the process only after one second.
void watch() {
  sigset_t const set = stop_signals();
  std::chrono::steady_clock::time_point first;
  for (int signal_number = 0; sigwait(&set, &signal_number) == 0;) {
    auto const now = std::chrono::steady_clock::now();
    if (signal_number == SIGUSR2) {
      save_requested.store(true);
    } else if (requested.load() == 0) {
      first = now;
      requested.store(signal_number);
    } else if ((signal_number == SIGINT || signal_number == SIGTERM) &&
               now - first > std::chrono::seconds(1)) {
      end_immediately(signal_number);
    }
  }
}

}  // namespace

/// One thread waits for the signals and every other thread blocks them, so that no signal handler
/// interrupts a kernel: with ordinary handlers a signal during a just-in-time compiled matrix
/// product (oneDNN 2.6.3) corrupted its memory.
void StopRequest::install() {
  sigset_t const set = stop_signals();
  pthread_sigmask(SIG_BLOCK, &set, nullptr);
  std::thread(watch).detach();
  ::signal(SIGPIPE, SIG_IGN);  // a closed log must not end the run
}

int StopRequest::signal() { return requested.load(); }

StopRequest::BeforeTheEnd::BeforeTheEnd(std::function<void(int)> call) {
  std::lock_guard const lock(last_words_mutex);
  last_words = std::move(call);
}
StopRequest::BeforeTheEnd::~BeforeTheEnd() {
  std::lock_guard const lock(last_words_mutex);
  last_words = nullptr;
}

bool StopRequest::take_save() { return save_requested.exchange(false); }

std::string StopRequest::name(int request) {
  switch (request) {
    case time_limit:
      return "the time limit";
    case SIGTERM:
      return "SIGTERM";
    case SIGINT:
      return "SIGINT";
    case SIGUSR1:
      return "SIGUSR1";
    case SIGXCPU:
      return "SIGXCPU";
    case SIGHUP:
      return "SIGHUP";
    default:
      return "signal " + std::to_string(request);
  }
}

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
