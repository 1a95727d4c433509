#pragma once
/// The last collective operations of this process, for the time after a peer is lost: which rank
/// waited in which operation.

#include <atomic>
#include <chrono>
#include <cstddef>
#include <deque>
#include <filesystem>
#include <functional>
#include <memory>
#include <mutex>
#include <string>

#include "tessera/memory/queue.hpp"

namespace tessera::comm {

class FlightRecorder {
 public:
  /// Operations that are kept.
  static constexpr std::size_t capacity = 64;

  static FlightRecorder& of_process();

  /// Called by every implementation of Collectives for each operation, in the order of the calls.
  /// @param after the event of its input  @param done its end
  void add(std::string what, memory::Event after, memory::Event done);
  /// Calls @p work, an operation that runs in the calling thread. @p describe is called for text()
  /// only, since describing takes longer than a small operation.
  void run(std::function<std::string()> describe, std::function<void()> const& work);
  /// A line per operation, the oldest first: seconds since its call, its state (waits for its
  /// input, runs, done, failed) and its description.
  std::string text() const;

  /// Where write() writes: rank_00003.txt in @p directory, which is made then.
  void set_destination(std::filesystem::path directory, int rank);
  /// Writes @p reason and text(). A device that does not answer within two seconds costs the states
  /// of the operations. Never throws; nothing happens without a destination.
  void write(std::string const& reason) const noexcept;

 private:
  using Clock = std::chrono::system_clock;
  struct Operation {
    Clock::time_point called;
    std::string what;
    memory::Event after, done;
    std::function<std::string()> describe{};  ///< describes one in the calling thread,
    std::shared_ptr<std::atomic<char const*>> in_caller = {};  ///< and its state
  };
  enum class States { asked, unknown };
  static std::string text_of(std::deque<Operation> const& operations, States states);

  mutable std::mutex mutex_;
  std::deque<Operation> operations_;
  std::filesystem::path directory_;
  int rank_ = 0;
};

}  // namespace tessera::comm
