#include "tessera/comm/base/flight_recorder.hpp"

#include <fmt/format.h>
#include <unistd.h>

#include <fstream>
#include <future>
#include <memory>
#include <thread>
#include <utility>

#include "tessera/core/clock.hpp"
#include "tessera/core/process.hpp"

namespace tessera::comm {

using namespace std::chrono_literals;

FlightRecorder& FlightRecorder::of_process() {
  static FlightRecorder& recorder = *new FlightRecorder;  // used until the process ends
  return recorder;
}

void FlightRecorder::add(std::string what, memory::Event after, memory::Event done) {
  std::lock_guard const lock(mutex_);
  if (operations_.size() == capacity) operations_.pop_front();
  operations_.push_back({Clock::now(), std::move(what), std::move(after), std::move(done)});
}

void FlightRecorder::run(std::function<std::string()> describe, std::function<void()> const& work) {
  auto const state = std::make_shared<std::atomic<char const*>>("runs");
  {
    std::lock_guard const lock(mutex_);
    if (operations_.size() == capacity) operations_.pop_front();
    operations_.push_back({Clock::now(), {}, {}, {}, std::move(describe), state});
  }
  try {
    work();
  } catch (...) {
    *state = "failed";
    throw;
  }
  *state = "done";
}

namespace {

/// After an error the queue has dropped the operation: its event has happened and has the error.
char const* state_of_end(memory::Event const& done) {
  try {
    done.wait("an operation", 0ms);
    return "done";
  } catch (std::exception const&) {
    return "failed";
  }
}

}  // namespace

std::string FlightRecorder::text_of(std::deque<Operation> const& operations, States states) {
  std::string out;
  auto const now = Clock::now();
  for (auto const& o : operations) {
    char const* const state = o.in_caller                 ? o.in_caller->load()
                              : states == States::unknown ? "not known"
                              : o.done.done()             ? state_of_end(o.done)
                              : o.after.done()            ? "runs"
                                                          : "waits for its input";
    out += fmt::format("{:>10.3f} s ago  {:<19}  {}\n",
                       std::chrono::duration<double>(now - o.called).count(), state,
                       o.in_caller ? o.describe() : o.what);
  }
  return out;
}

std::string FlightRecorder::text() const {
  std::deque<Operation> operations;
  {
    std::lock_guard const lock(mutex_);
    operations = operations_;
  }
  return text_of(operations, States::asked);
}

void FlightRecorder::set_destination(std::filesystem::path directory, int rank) {
  std::lock_guard const lock(mutex_);
  directory_ = std::move(directory);
  rank_ = rank;
}

void FlightRecorder::write(std::string const& reason) const noexcept try {
  std::deque<Operation> operations;
  std::filesystem::path directory;
  {
    std::lock_guard const lock(mutex_);
    operations = operations_;
    directory = directory_;
  }
  if (directory.empty()) return;
  auto answer = std::make_shared<std::promise<std::string>>();
  auto text = answer->get_future();
  std::thread([operations, answer] {
    answer->set_value(text_of(operations, States::asked));
  }).detach();
  bool const answered = text.wait_for(2s) == std::future_status::ready;
  std::filesystem::create_directories(directory);
  std::ofstream out(directory / fmt::format("rank_{:05d}.txt", rank_));
  out << fmt::format("rank {} on {}, process {}, {}\n{}\n\nThe last collective operations:\n{}",
                     rank_, host_name(), ::getpid(), utc_timestamp(), reason,
                     answered ? text.get() : text_of(operations, States::unknown));
} catch (...) {  // the failure that it was to explain has been reported
}

}  // namespace tessera::comm
