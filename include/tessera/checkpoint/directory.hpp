#pragma once
/// Finding, listing and verifying the checkpoints of a run.

#include <cstdint>
#include <filesystem>
#include <optional>
#include <string>
#include <vector>

#include "tessera/checkpoint/manifest.hpp"

namespace tessera::checkpoint {

/// "step_00000100".
std::string step_name(std::int64_t step);

struct Found {
  std::filesystem::path directory;  ///< of the checkpoint
  std::int64_t step = 0;
  std::string note;  ///< empty when `latest` named it; else why another one was taken, for the log
};

/// The checkpoint to resume from: the one `latest` names, or the newest whole one when `latest` is missing or names a damaged one.
/// Whole means: the manifest is valid and every shard is there with its size. Steps in @p refused are passed over.
/// @param checkpoints "<output_dir>/checkpoints" or "<output_dir>"; nothing is found when it does not exist
std::optional<Found> find_latest(std::filesystem::path const& checkpoints, std::vector<std::int64_t> const& refused = {});

/// The directory of one checkpoint from what a user gave: itself, the checkpoints directory or the run directory.
/// @param tag "step_00000100", "100", or empty for the latest
/// @throws IoError (nothing there) or DataError (none of them is whole), saying where it looked
std::filesystem::path resolve_checkpoint(std::filesystem::path const& given, std::string const& tag = "");

struct Listed {
  std::string name;
  std::filesystem::path directory;
  std::int64_t step = 0;
  std::int64_t bytes = 0;      ///< of all its files
  double age_seconds = 0;      ///< since its manifest was written
  bool is_latest = false;
  bool is_whole = false;
  std::string problem;         ///< why it is not whole
};
/// By step. Accepts a run directory too. Names that are no checkpoint's are not listed.
std::vector<Listed> list_checkpoints(std::filesystem::path const& checkpoints);

/// Empty when the manifest is valid and every shard is there with its size; else what is wrong. Reads no tensor.
std::string find_problem(std::filesystem::path const& step_directory);

struct VerifyReport {
  std::int64_t files = 0, tensors = 0, bytes = 0;  ///< checked
  std::vector<std::string> problems;               ///< each naming file and tensor; empty: the checkpoint is whole
  bool ok() const { return problems.empty(); }
};
/// Reads every byte of every shard and compares: sizes, checksums, and what HDF5 itself says about run, step, datasets and
/// their places with the manifest. Never throws for damage: it is reported.
VerifyReport verify(std::filesystem::path const& step_directory);

/// "1.10.8" of the HDF5 library that is loaded, for --version.
std::string hdf5_version();

/// Writes view.h5 of a checkpoint anew, after it was removed or damaged; about 1 s for a million pieces.
/// @return the file. @throws DataError when the manifest is malformed, IoError
std::filesystem::path make_view(std::filesystem::path const& step_directory);

}  // namespace tessera::checkpoint
