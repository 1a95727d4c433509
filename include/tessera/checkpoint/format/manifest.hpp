#pragma once
/// What a checkpoint contains: the parsed form of manifest.json, written last. Files and flows:
/// docs/reference/checkpoint.md.

#include <cstdint>
#include <filesystem>
#include <optional>
#include <string>
#include <vector>

#include "tessera/checkpoint/format/nonfinite.hpp"
#include "tessera/core/config_tree.hpp"
#include "tessera/core/dtype.hpp"

namespace tessera::checkpoint {

/// Bytes of a shard file.
struct ByteRange {
  std::int64_t offset = 0, bytes = 0;
  std::int64_t end() const { return offset + bytes; }
  bool operator==(ByteRange const&) const = default;
};

/// Where one state of an extent is in its shard file, and the XXH3 (64 bit) of every chunk of
/// `checksum_chunk` bytes of it.
struct StateLocation {
  std::int64_t file_offset = 0;     ///< bytes; of the first chunk in a compressed shard
  std::vector<std::uint64_t> xxh3;  ///< checksums of the elements, compressed or not
  std::vector<ByteRange>
      chunks;  ///< chunks of a compressed shard: one stored chunk per checksum chunk; else empty
  bool operator==(StateLocation const&) const = default;
};

/// A run of one tensor's elements in one shard file.
struct ExtentRecord {
  int shard = 0;            ///< index in Manifest::shards
  std::int64_t offset = 0;  ///< first element in the tensor
  std::int64_t numel = 0;
  std::vector<StateLocation> states;  ///< parallel to Manifest::states
  int rank = -1;                      ///< that owned it; -1: that of the shard, or several
  bool operator==(ExtentRecord const&) const = default;
};

/// Extents of one tensor that follow each other in one shard: one dataset of that file.
struct DatasetRun {
  int shard = 0;
  std::int64_t offset = 0, numel = 0;         ///< elements of the tensor
  std::size_t first_extent = 0, extents = 0;  ///< in TensorRecord::extents
};

/// A parameter of the model in a checkpoint.
struct TensorRecord {
  std::string name;  ///< Hugging Face name
  std::vector<std::int64_t> shape;
  std::vector<std::string> aliases;   ///< further names of the same tensor (tied head)
  Dtype dtype = Dtype::fp32;          ///< dtype of the stored elements
  std::vector<ExtentRecord> extents;  ///< by offset; they cover the tensor without hole or overlap
  /// The ranks that shared this tensor in the run that wrote it, such as those of one coordinate
  /// of axis expert; empty: all ranks. Any ranks may read it.
  std::vector<int> owners;
  std::int64_t numel() const;
  std::vector<DatasetRun> runs() const;  ///< by offset
  bool operator==(TensorRecord const&) const = default;
};

/// How a shard's elements are stored: as they are, or in chunks through HDF5's filters shuffle and
/// deflate.
enum class Compression { none, shuffle_gzip };

/// A shard file of a checkpoint.
struct ShardRecord {
  std::string file;  ///< plain file name, next to the manifest
  std::int64_t bytes = 0;
  int first_rank = 0, ranks = 0;  ///< whose parts it holds; 0 ranks: not known
  Compression compression = Compression::none;
  bool operator==(ShardRecord const&) const = default;
};

/// A state that keeps fewer values than its parameters. Its tensors have the names of the
/// parameters and shapes of their own, and one state.
struct ReducedState {
  std::string name;  ///< "exp_avg_sq_row"
  std::vector<TensorRecord> tensors;
  bool operator==(ReducedState const&) const = default;
};

/// The contents of manifest.json.
struct Manifest {
  /// Version 1: one extent of a tensor in a shard. Version 2: several, that follow each other in
  /// one dataset; compressed shards. Version 3: reduced states.
  static constexpr std::int64_t current_version = 3;

  std::filesystem::path directory;  ///< that holds it
  std::string run_id;
  std::string created_utc;
  std::int64_t step = 0;    ///< completed training steps
  std::int64_t tokens = 0;  ///< seen in training
  std::int64_t samples = 0;
  int world_size = 0;
  int zero_stage = 0;
  ConfigTree model_config;     ///< Hugging Face config.json
  ConfigTree resolved_config;  ///< what the run was told and what it chose
  ConfigTree trainer_state;  ///< the train layer's own: data position, seeds, loss scaler, schedule
  ConfigTree versions;
  /// Describes the parameters that do not train, where `tensors` has only those that do:
  /// {"parameters": their names, "checksum": of their values, "adapter_config": PEFT's, of a run
  /// with adapters}. Null: every parameter trains.
  ConfigTree frozen;
  std::int64_t checksum_chunk = 0;  ///< bytes
  std::vector<std::string> states;  ///< element-wise: "fp32", "exp_avg", "exp_avg_sq"
  /// Values that were not finite when the shards were written; none: it was not checked.
  std::optional<std::vector<NonFinite>> nonfinite;
  std::int64_t skipped_in_a_row = 0;  ///< steps without an update, up to this one
  std::vector<ShardRecord> shards;
  std::vector<TensorRecord> tensors;  ///< in the order of the units' flat buffers
  std::vector<ReducedState> reduced_states;

  std::filesystem::path file() const { return directory / "manifest.json"; }
  std::filesystem::path shard_path(int shard) const {
    return directory / shards[static_cast<std::size_t>(shard)].file;
  }
  /// The names of `states` and `reduced_states`.
  std::vector<std::string> state_names() const;
  /// Returns a manifest per reduced state: it has these files, and the tensors of that state only.
  std::vector<Manifest> reduced_manifests() const;
  /// Index in `states`. @throws DataError naming the states that exist.
  std::size_t state_index(std::string const& name) const;
  /// The tensor with this name or alias, or null.
  TensorRecord const* find(std::string const& name) const;
  std::int64_t parameter_count() const {
    std::int64_t count = 0;
    for (auto const& tensor : tensors) count += tensor.numel();
    return count;
  }
  std::int64_t needed_version() const;  ///< the lowest that can say this
  /// Returns the sum of the sizes of all shard files.
  std::int64_t shard_bytes() const {
    std::int64_t bytes = 0;
    for (auto const& shard : shards) bytes += shard.bytes;
    return bytes;
  }
};

/// Reads and validates @p step_directory/manifest.json.
/// @throws IoError when it cannot be read, DataError naming file and field when it is malformed,
/// written by a newer version, or its extents do not cover the tensors
Manifest read_manifest(std::filesystem::path const& step_directory);
/// The text of @p step_directory/manifest.json. @throws IoError, DataError when it is too large
std::string read_manifest_text(std::filesystem::path const& step_directory);
/// From text, for tests and tools; @p directory becomes Manifest::directory.
Manifest parse_manifest(std::string_view text, std::filesystem::path const& directory);
/// The text of manifest.json, one line an extent.
std::string manifest_text(Manifest const& manifest);

}  // namespace tessera::checkpoint

namespace tessera::checkpoint::detail {

/// Names are unique, the extents of each tensor cover it once and are inside their shard files, and
/// every chunk has its checksum. Sorts the extents by offset.
/// @param source names the manifest in messages
/// @throws DataError
void check_consistency(Manifest& m, std::string const& source);

}  // namespace tessera::checkpoint::detail
