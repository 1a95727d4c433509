#pragma once
/// The directory of a run's checkpoints in memory: made by its ranks on every node, owned by
/// `tessera run`, which removes it at the end.

#include <filesystem>
#include <string>
#include <vector>

#include "launch/launch_plan.hpp"

namespace tessera::cli {

class MemoryDirectory {
 public:
  /// Removes directories on this machine whose `tessera run` was killed.
  /// @param parent  on tmpfs
  explicit MemoryDirectory(std::filesystem::path const& parent = "/dev/shm");
  /// Removes it on this machine.
  ~MemoryDirectory();
  MemoryDirectory(MemoryDirectory const&) = delete;
  MemoryDirectory& operator=(MemoryDirectory const&) = delete;

  std::filesystem::path const& path() const { return path_; }
  /// Removes it on the nodes of @p launch, by its launcher. @returns what failed; empty: nothing
  std::string remove_on(LaunchRequest launch) const;

 private:
  std::filesystem::path path_;
};

}  // namespace tessera::cli
