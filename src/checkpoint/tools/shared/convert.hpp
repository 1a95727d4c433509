#pragma once
/// Copies a checkpoint into other shard files: fewer or more of them, compressed or not. One
/// process streams all data.

#include <cstdint>
#include <filesystem>
#include <string>

#include "tessera/checkpoint/format/directory.hpp"
#include "tessera/checkpoint/format/manifest.hpp"

namespace tessera::checkpoint {

struct ConvertOptions {
  std::filesystem::path
      source;            ///< run directory, checkpoints directory or one checkpoint; only read
  std::string tag = "";  ///< which one; empty: the latest
  std::filesystem::path destination;  ///< directory of the new checkpoint; must not exist
  int ranks =
      0;  ///< cut the tensors into parts for this many ranks; 0: leave the parts as they are
  int ranks_per_file = 0;  ///< 0: leave the files as they are (with `ranks`: one file per rank)
  Compression compression = Compression::none;
  int level = 4;  ///< compression level of gzip, 1 (quick) to 9 (small)
  ProgressCall progress = {};
  WhenDamaged when_damaged = WhenDamaged::refuse;  ///< the latest, without a tag
};

struct ConvertReport {
  std::filesystem::path source, destination;
  std::int64_t step = 0, source_files = 0, files = 0;
  std::int64_t source_bytes = 0, bytes = 0;  ///< bytes of all shard files
  double seconds = 0;
};

/// Elements, names, step and all training states stay bit for bit; every chunk is checked on the
/// way. The directory appears under its name when it is complete and durable; a failure removes it.
/// @throws UsageError (destination exists, numbers out of range), DataError (damage, parts whose
/// ranks are not known), IoError
ConvertReport convert(ConvertOptions const& options);

}  // namespace tessera::checkpoint
