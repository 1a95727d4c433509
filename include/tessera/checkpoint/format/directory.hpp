#pragma once
/// Finding and listing the checkpoints of a run, and writing their view.h5: virtual datasets over
/// all shards.

#include <cstdint>
#include <filesystem>
#include <functional>
#include <optional>
#include <string>
#include <utility>
#include <vector>

#include "tessera/checkpoint/format/manifest.hpp"

namespace tessera::checkpoint {

/// "step_00000100".
std::string step_name(std::int64_t step);

/// Directories of checkpoints in ascending order of their steps, complete or not; temporary ones
/// are not among them. Empty when the directory does not exist. @throws IoError when it cannot be
/// read
std::vector<std::pair<std::int64_t, std::filesystem::path>> step_directories(
    std::filesystem::path const& checkpoints);

/// What can be done with a checkpoint.
enum class CheckpointState {
  complete,    ///< the manifest is valid and every shard exists with its size
  only_model,  ///< no training state (ModelFiles::only_model); no run can resume from it
  damaged,
  unreadable,  ///< the system refuses access; nothing is known about the data
};
/// What keeps a run from resuming from a checkpoint.
struct CheckpointProblem {
  CheckpointState state = CheckpointState::complete;
  std::string text;           ///< what is wrong, with file names; empty when complete
  bool made_progress = true;  ///< its last step updated the weights
};
/// Looks at the manifest and the sizes of the shards; reads no tensor. Does not throw.
CheckpointProblem examine(std::filesystem::path const& step_directory);

/// The checkpoint that a run resumes from.
struct LatestCheckpoint {
  std::filesystem::path directory;  ///< directory of the checkpoint
  std::int64_t step = 0;
  std::string note;  ///< empty when `latest` named it; else why another one was taken, for the log
  /// A newer checkpoint, or the one that `latest` names, is damaged or missing.
  bool is_older = false;
};

/// The checkpoint to resume from: the one `latest` names, or the newest complete one when `latest`
/// is missing or names a damaged one. Steps in @p refused are passed over.
/// @param checkpoints "<output_dir>/checkpoints" or "<output_dir>"; nothing is found when it does
/// not exist
/// @throws IoError when the directory or a checkpoint in it cannot be read: it is never passed over
std::optional<LatestCheckpoint> find_latest(std::filesystem::path const& checkpoints,
                                            std::vector<std::int64_t> const& refused = {});

/// For a caller that found no latest checkpoint and is about to start without one: returns when the
/// directory holds no checkpoint, or only models.
/// @throws DataError naming the damage when it holds damaged ones: they may be a run's only copy
void require_no_damaged_checkpoint(std::filesystem::path const& checkpoints);

/// What to do when the checkpoint that `latest` names, or the newest one, is damaged or missing.
enum class WhenDamaged {
  refuse,     ///< a DataError that names the damage and the newest complete checkpoint
  use_older,  ///< take the newest complete one, with a warning in the log
  take,       ///< take the damaged one, to describe its damage
};

/// The directory of one checkpoint from what a user gave: itself, the checkpoints directory or the
/// run directory.
/// @param tag "step_00000100", "100", or empty for the latest
/// @throws IoError (no checkpoint found, no access) or DataError (damaged), naming the searched
/// directory
std::filesystem::path resolve_checkpoint(std::filesystem::path const& given,
                                         std::string const& tag = "",
                                         WhenDamaged when_damaged = WhenDamaged::refuse);

/// A checkpoint in the list of a run's checkpoints.
struct CheckpointInfo {
  std::string name;
  std::filesystem::path directory;
  std::int64_t step = 0;
  std::int64_t bytes = 0;  ///< bytes of all its files
  double age_seconds = 0;  ///< since its manifest was written
  bool is_latest = false;
  bool is_complete = false;
  CheckpointState state = CheckpointState::complete;
  std::string problem;        ///< why it is not complete
  bool made_progress = true;  ///< its last step updated the weights
};
/// Lists checkpoints in the order of their steps; @p checkpoints may be a run directory. Names that
/// are no checkpoint's are not listed.
/// @throws IoError when the directory cannot be read
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

/// The text of examine().
std::string find_problem(std::filesystem::path const& step_directory);

/// Bytes done of those to do.
using ProgressCall = std::function<void(std::int64_t done, std::int64_t total)>;

/// "1.10.8" of the HDF5 library that is loaded, for --version.
std::string hdf5_version();

/// Writes virtual datasets `/STATE/TENSOR` in their true shapes over all shards. File names are
/// relative; elements of a missing shard read as NaN. HDF5 needs about 10 us for each source: with
/// shards shared per node, less than a second for 1,000 ranks (docs/reference/performance.md).
void write_view(std::filesystem::path const& file, Manifest const& manifest);

/// Writes view.h5 of a checkpoint again, after it was removed or damaged.
/// @return the file. @throws DataError when the manifest is malformed, IoError
std::filesystem::path make_view(std::filesystem::path const& step_directory);

}  // namespace tessera::checkpoint
