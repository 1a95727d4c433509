#pragma once
/// Ends a process whose calls of a library do not return. The thread that watches deadlines calls
/// the same libraries, and may block behind them.

#include <array>
#include <atomic>
#include <chrono>
#include <cstdint>
#include <functional>
#include <string>
#include <thread>

namespace tessera::comm::detail {

class HangWatch {
 public:
  /// The threads that it watches: the caller of the collectives, and the one that checks them.
  enum class Watched : std::size_t { caller, checker };
  using OnHang = std::function<void(std::string const& problem)>;

  /// @param on_hang called once on a thread of its own, which calls no library and takes no lock of
  /// the watched threads
  HangWatch(std::chrono::milliseconds limit, OnHang on_hang);
  ~HangWatch();
  HangWatch(HangWatch const&) = delete;

  /// While it lives, its thread is inside calls that must return within the limit.
  class Inside {
   public:
    Inside(HangWatch& watch, Watched thread);
    ~Inside();
    Inside(Inside const&) = delete;

   private:
    std::atomic<std::int64_t>& since_;
    std::int64_t before_;
  };

 private:
  void run();
  std::chrono::milliseconds limit_;
  OnHang on_hang_;
  std::array<std::atomic<std::int64_t>, 2> since_{};  ///< milliseconds of the clock; 0: outside
  std::atomic<bool> ends_{false};
  std::thread thread_;
};

/// The error in the log and in the flight record, then exit code 69 without further cleaning.
void end_after_hang(std::string const& problem);

}  // namespace tessera::comm::detail
