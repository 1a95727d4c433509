#pragma once
/// Removing checkpoints that are no longer needed.

#include <cstdint>
#include <filesystem>
#include <string>
#include <vector>

namespace tessera::checkpoint {

/// What an interrupted save left: "step_00000110.tmp.1", ".trash.*", "latest.tmp.*".
struct UnfinishedSave {
  std::string name;
  std::filesystem::path path;
  std::int64_t bytes = 0;
  double idle_seconds = 0;   ///< since anything in it was last written
  bool is_complete = false;  ///< a complete checkpoint that lacks only its last rename; the next
                             ///< start of the run does that
};
std::vector<UnfinishedSave> list_unfinished(std::filesystem::path const& checkpoints);

struct PruneOptions {
  std::filesystem::path checkpoints;  ///< run directory or its checkpoints directory
  std::int64_t keep = 1;              ///< complete checkpoints to keep, the newest
  double older_than_seconds = 0;      ///< younger ones stay too
  enum class Damaged { list, remove } damaged = Damaged::list;
  enum class Check {
    sizes,
    checksums
  } check = Check::sizes;  ///< what a checkpoint must pass to count as complete
  enum class Mode { remove, dry_run } mode = Mode::remove;
  double idle_seconds =
      3600;  ///< an unfinished save that was written to since counts as a save in progress
};
struct PrunedCheckpoint {
  std::string name, why;
  std::int64_t bytes = 0;
  bool removed = false;  ///< or would be, in a dry run
};
/// Never removes the newest `keep` complete checkpoints, the one `latest` names, nor a save in
/// progress or complete.
/// @throws UsageError unless keep >= 1; IoError when one cannot be removed
std::vector<PrunedCheckpoint> prune(PruneOptions const& options);

}  // namespace tessera::checkpoint
