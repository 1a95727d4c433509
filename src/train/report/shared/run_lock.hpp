#pragma once
/// One job at a time in an output directory.

#include <chrono>
#include <filesystem>
#include <memory>
#include <optional>
#include <string>

#include "tessera/core/error.hpp"

namespace tessera::train {

/// Another job uses the directory: this one must end without touching its files.
struct DirectoryInUse : UsageError {
  using UsageError::UsageError;
};

/// The owner of a run directory, for programs that only look.
struct LockOwner {
  bool alive = false;
  std::string description;  ///< "process 17 on host n1, job 42, started ..."
};
/// Nothing when the directory has no lock. @param wait  for a heartbeat (one every 10 s) of an
/// owner whose process cannot be seen from here; without one it counts as dead
std::optional<LockOwner> find_owner(
    std::filesystem::path const& directory,
    std::chrono::milliseconds wait = std::chrono::milliseconds(12'000));

/// The file `.lock` in the output directory: its owner, and a heartbeat counter.
///
/// An owner on this host is alive if its process is (process id and start time, because ids are
/// reused). For an owner on another host only the counter decides: a file that has not changed for
/// `patience` is stale and is taken over. This needs no synchronized clocks, no time stamps of
/// files and no file system locks. An owner that was suspended for longer learns from held() that
/// another job has replaced it.
class RunLock {
 public:
  struct Timing {
    std::chrono::milliseconds beat{10'000};      ///< between heartbeats
    std::chrono::milliseconds patience{35'000};  ///< without a heartbeat
  };
  /// @throws DirectoryInUse naming host, process, job and start of the owner; IoError
  explicit RunLock(std::filesystem::path const& directory, Timing timing);
  explicit RunLock(std::filesystem::path const& directory) : RunLock(directory, Timing{}) {}
  /// Removes the file if it is still this one's.
  ~RunLock();
  RunLock(RunLock const&) = delete;
  RunLock& operator=(RunLock const&) = delete;

  /// False once a heartbeat has found that another job owns the file.
  bool held() const;
  /// The previous owner, for the log; empty if the directory was free.
  std::string const& replaced() const;

 private:
  struct Impl;
  std::unique_ptr<Impl> impl_;
};

}  // namespace tessera::train
