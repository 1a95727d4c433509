#pragma once
/// Finding and listing the checkpoints of a run.

#include <cstdint>
#include <filesystem>
#include <optional>
#include <string>
#include <vector>

#include "tessera/checkpoint/format/manifest.hpp"

namespace tessera::checkpoint {

/// "step_00000100".
std::string step_name(std::int64_t step);

struct LatestCheckpoint {
  std::filesystem::path directory;  ///< of the checkpoint
  std::int64_t step = 0;
  std::string note;  ///< empty when `latest` named it; else why another one was taken, for the log
};

/// The checkpoint to resume from: the one `latest` names, or the newest complete one when `latest`
/// is missing or names a damaged one. Complete means: the manifest is valid and every shard exists
/// with its size. Steps in @p refused are passed over.
/// @param checkpoints "<output_dir>/checkpoints" or "<output_dir>"; nothing is found when it does
/// not exist
std::optional<LatestCheckpoint> find_latest(std::filesystem::path const& checkpoints,
                                            std::vector<std::int64_t> const& refused = {});

/// The directory of one checkpoint from what a user gave: itself, the checkpoints directory or the
/// run directory.
/// @param tag "step_00000100", "100", or empty for the latest
/// @throws IoError (no checkpoint found) or DataError (none is complete), naming the searched
/// directory
std::filesystem::path resolve_checkpoint(std::filesystem::path const& given,
                                         std::string const& tag = "");

struct CheckpointInfo {
  std::string name;
  std::filesystem::path directory;
  std::int64_t step = 0;
  std::int64_t bytes = 0;  ///< of all its files
  double age_seconds = 0;  ///< since its manifest was written
  bool is_latest = false;
  bool is_complete = false;
  std::string problem;        ///< why it is not complete
  bool made_progress = true;  ///< its last step updated the weights
};
/// By step. Accepts a run directory too. Names that are no checkpoint's are not listed.
std::vector<CheckpointInfo> list_checkpoints(std::filesystem::path const& checkpoints);

/// Which checkpoints a limit keeps, asked from the newest on. One that was saved while steps were
/// skipped does not count, because its weights may be what no further step can use; it stays until
/// there is a newer one.
class RetentionCount {
 public:
  explicit RetentionCount(std::int64_t keep) : keep_(keep) {}
  /// @pre @p checkpoint is complete
  bool keeps(CheckpointInfo const& checkpoint);
  bool full() const { return counted_ >= keep_; }  ///< keeps no further one

 private:
  std::int64_t keep_, counted_ = 0;
  bool is_newest_ = true;
};

/// Whether the checkpoint holds only a model, without the state that a run needs to resume
/// (ModelFiles::only_model).
bool holds_only_model(std::filesystem::path const& step_directory);

/// Empty when the manifest is valid and every shard is there with its size; else what is wrong.
/// Reads no tensor.
std::string find_problem(std::filesystem::path const& step_directory);

}  // namespace tessera::checkpoint
