#pragma once
/// One job at a time in an output directory.

#include <chrono>
#include <filesystem>
#include <memory>
#include <string>

#include "tessera/core/error.hpp"

namespace tessera::train {

/// Another job works in the directory: this one must end without touching any of its files.
struct DirectoryInUse : UsageError {
  using UsageError::UsageError;
};

/// The file `.lock` in the output directory: who owns it, and a number that the owner counts up.
///
/// An owner on this host is alive when its process is (number and start time, so that a number
/// given again does not count). Of one on another host only the counting tells: a file whose text
/// has not changed for `patience` is stale and taken over. No clock of another machine and no time
/// stamp of a file is looked at, and no locks of the file system are needed. An owner that was held
/// up for longer than that learns from held() that it has been replaced.
class RunLock {
 public:
  struct Timing {
    std::chrono::milliseconds beat{10'000};      ///< between counts
    std::chrono::milliseconds patience{35'000};  ///< without a count
  };
  /// @throws DirectoryInUse naming host, process, job and start of the owner; IoError
  explicit RunLock(std::filesystem::path const& directory, Timing timing);
  explicit RunLock(std::filesystem::path const& directory) : RunLock(directory, Timing{}) {}
  /// Removes the file if it is still this one's.
  ~RunLock();
  RunLock(RunLock const&) = delete;
  RunLock& operator=(RunLock const&) = delete;

  /// False from the moment on when a beat has found the file gone or another's.
  bool held() const;
  /// Who was replaced, for the log; empty when the directory was free.
  std::string const& replaced() const;

 private:
  struct Impl;
  std::unique_ptr<Impl> impl_;
};

}  // namespace tessera::train
