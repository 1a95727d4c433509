#include "tessera/train/stop_request.hpp"

#include <signal.h>
#include <time.h>

#include <atomic>

namespace tessera::train {
namespace {

std::atomic<int> requested{0};
std::atomic<long> requested_at{0};
static_assert(std::atomic<int>::is_always_lock_free && std::atomic<long>::is_always_lock_free, "used in a signal handler");

long now_milliseconds() {
  timespec t{};
  clock_gettime(CLOCK_MONOTONIC, &t);
  return t.tv_sec * 1000 + t.tv_nsec / 1'000'000;
}

/// Async-signal-safe: atomics and clock_gettime only. Slurm and mpirun often send the same signal twice within milliseconds, hence
/// the second of grace before a repeat counts as impatience.
void on_signal(int signal_number) {
  int expected = 0;
  if (requested.compare_exchange_strong(expected, signal_number)) {
    requested_at.store(now_milliseconds());
    return;
  }
  bool const insists = signal_number == SIGINT || signal_number == SIGTERM;
  if (insists && now_milliseconds() - requested_at.load() > 1000) {
    ::signal(signal_number, SIG_DFL);
    ::raise(signal_number);
  }
}

}  // namespace

void StopRequest::install() {
  struct sigaction action = {};
  action.sa_handler = on_signal;
  action.sa_flags = SA_RESTART;
  sigemptyset(&action.sa_mask);
  for (int s : {SIGTERM, SIGINT, SIGUSR1, SIGXCPU, SIGHUP}) sigaction(s, &action, nullptr);
  ::signal(SIGPIPE, SIG_IGN);  // a closed log must not end the run
}

int StopRequest::signal() { return requested.load(); }

std::string StopRequest::signal_name(int signal_number) {
  switch (signal_number) {
    case SIGTERM: return "SIGTERM";
    case SIGINT: return "SIGINT";
    case SIGUSR1: return "SIGUSR1";
    case SIGXCPU: return "SIGXCPU";
    case SIGHUP: return "SIGHUP";
    default: return "signal " + std::to_string(signal_number);
  }
}

}  // namespace tessera::train
