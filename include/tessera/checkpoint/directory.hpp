#pragma once
/// Finding, listing and verifying the checkpoints of a run.

#include <cstdint>
#include <filesystem>
#include <functional>
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

/// The checkpoint to resume from: the one `latest` names, or the newest whole one when `latest` is
/// missing or names a damaged one. Whole means: the manifest is valid and every shard is there with
/// its size. Steps in @p refused are passed over.
/// @param checkpoints "<output_dir>/checkpoints" or "<output_dir>"; nothing is found when it does
/// not exist
std::optional<Found> find_latest(std::filesystem::path const& checkpoints,
                                 std::vector<std::int64_t> const& refused = {});

/// The directory of one checkpoint from what a user gave: itself, the checkpoints directory or the
/// run directory.
/// @param tag "step_00000100", "100", or empty for the latest
/// @throws IoError (nothing there) or DataError (none of them is whole), saying where it looked
std::filesystem::path resolve_checkpoint(std::filesystem::path const& given,
                                         std::string const& tag = "");

struct Listed {
  std::string name;
  std::filesystem::path directory;
  std::int64_t step = 0;
  std::int64_t bytes = 0;  ///< of all its files
  double age_seconds = 0;  ///< since its manifest was written
  bool is_latest = false;
  bool is_whole = false;
  std::string problem;  ///< why it is not whole
};
/// By step. Accepts a run directory too. Names that are no checkpoint's are not listed.
std::vector<Listed> list_checkpoints(std::filesystem::path const& checkpoints);

/// What an interrupted save left: "step_00000110.tmp.1", ".trash.*", "latest.tmp.*".
struct Unfinished {
  std::string name;
  std::filesystem::path path;
  std::int64_t bytes = 0;
  double idle_seconds = 0;   ///< since anything in it was last written
  bool is_complete = false;  ///< a whole checkpoint that lacks only its last rename; the next start
                             ///< of the run does that
};
std::vector<Unfinished> list_unfinished(std::filesystem::path const& checkpoints);

struct PruneOptions {
  std::filesystem::path checkpoints;  ///< run directory or its checkpoints directory
  std::int64_t keep = 1;              ///< whole ones that stay, the newest
  double older_than_seconds = 0;      ///< younger ones stay too
  enum class Damaged { list, remove } damaged = Damaged::list;
  enum class Check {
    sizes,
    checksums
  } check = Check::sizes;  ///< what a checkpoint must pass to count as whole
  enum class Mode { remove, dry_run } mode = Mode::remove;
  double idle_seconds =
      3600;  ///< an unfinished save that was written to since is taken for a save under way
};
struct Pruned {
  std::string name, why;
  std::int64_t bytes = 0;
  bool removed = false;  ///< or would be, in a dry run
};
/// Never removes the newest `keep` whole checkpoints, the one `latest` names, nor a save under way
/// or complete.
/// @throws UsageError unless keep >= 1; IoError when one cannot be removed
std::vector<Pruned> prune(PruneOptions const& options);

/// A model without the state that a run needs to go on (SaveRequest::model_files, alone).
bool holds_only_model(std::filesystem::path const& step_directory);

/// Empty when the manifest is valid and every shard is there with its size; else what is wrong.
/// Reads no tensor.
std::string find_problem(std::filesystem::path const& step_directory);

/// Bytes done of those to do.
using ProgressCall = std::function<void(std::int64_t done, std::int64_t total)>;

/// One thing that is wrong with a checkpoint.
struct Damage {
  std::string file;           ///< path
  std::string tensor, state;  ///< empty: the file as a whole
  std::int64_t first_byte = 0,
               end_byte = 0;  ///< of the file, [first, end); equal: no range can be named
  std::string text;           ///< the whole message
};
struct VerifyOptions {
  enum class Depth { structure, everything };
  Depth depth =
      Depth::everything;  ///< structure: manifest, sizes, what HDF5 says; no element is read
  std::size_t most_reported = 100;  ///< further damage is only counted
  ProgressCall progress = {};
};
struct VerifyReport {
  std::int64_t files = 0, tensors = 0, bytes = 0;  ///< checked
  std::int64_t damages = 0;                        ///< found; the first of them are in `found`
  std::vector<Damage> found;
  std::vector<std::string> problems;  ///< texts of `found`, and a last line when there are more
  bool ok() const { return damages == 0; }
};
/// Compares every shard with the manifest: size, checksum of every block, and what HDF5 itself says
/// about run, step, datasets and their places; the view's sources too. Goes on after damage, also
/// in a truncated shard. HDF5 works in a child process with bounded memory: a file that makes it
/// crash is damage like any other. Never throws for damage: it is reported.
VerifyReport verify(std::filesystem::path const& step_directory, VerifyOptions const& options = {});

/// "1.10.8" of the HDF5 library that is loaded, for --version.
std::string hdf5_version();

/// Writes view.h5 of a checkpoint anew, after it was removed or damaged; about 1 s for a million
/// pieces.
/// @return the file. @throws DataError when the manifest is malformed, IoError
std::filesystem::path make_view(std::filesystem::path const& step_directory);

}  // namespace tessera::checkpoint
