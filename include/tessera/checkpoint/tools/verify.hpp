#pragma once
/// Comparing the files of a checkpoint with its manifest.

#include <cstddef>
#include <cstdint>
#include <filesystem>
#include <string>
#include <vector>

#include "tessera/checkpoint/format/directory.hpp"

namespace tessera::checkpoint {

/// One thing that is wrong with a checkpoint.
struct Damage {
  std::string file;           ///< path
  std::string tensor, state;  ///< empty: the complete file
  std::int64_t first_byte = 0,
               end_byte = 0;  ///< range of the file, [first, end); equal: no range can be named
  std::string text;           ///< the full message
};
/// How thoroughly verify() checks.
struct VerifyOptions {
  /// What is read: only the structure, or every element too.
  enum class Depth { structure, everything };
  Depth depth =
      Depth::everything;  ///< structure: manifest, sizes, what HDF5 says; no element is read
  std::size_t max_reported = 100;  ///< further damage is only counted
  ProgressCall progress = {};
};
/// What verify() has checked and found.
struct VerifyReport {
  std::int64_t files = 0, tensors = 0, bytes = 0;  ///< checked
  std::int64_t damages = 0;                        ///< found; the first of them are in `found`
  /// damages that are manifests or shards that the system does not open
  std::int64_t unreadable = 0;
  std::vector<Damage> found;
  std::vector<std::string> problems;  ///< texts of `found`, and a last line when there are more
  bool ok() const { return damages == 0; }
};
/// Compares every shard with the manifest: size, checksum of every chunk, and what HDF5 itself says
/// about run, step, datasets and their offsets; the view's sources too. Continues after damage,
/// also in a truncated shard. HDF5 works in a child process with bounded memory: a file that makes
/// it crash is damage like any other. Values that are inf or NaN are reported by tensor and state.
/// Never throws for damage: it is reported.
VerifyReport verify(std::filesystem::path const& step_directory, VerifyOptions const& options = {});

}  // namespace tessera::checkpoint
