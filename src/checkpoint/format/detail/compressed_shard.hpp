#pragma once
/// A shard whose datasets are chunked and pass HDF5's filters shuffle and deflate, which every HDF5
/// program has built in.

#include <filesystem>
#include <functional>
#include <string>
#include <vector>

#include "format/detail/hdf5.hpp"
#include "format/detail/shard_file.hpp"

namespace tessera::checkpoint::detail {

/// Groups, datasets, attributes; @p make creates the dataset of a run under a path.
void write_structure(hid_t file, ShardLayout const& layout, int version,
                     std::function<h5::Id(std::string const& path, RunLayout const&)> const& make);
/// Chunks arrive compressed (compress_chunk) and go into the file as they are. A chunk is a
/// checksum chunk, or the dataset if that is smaller.
class CompressedShard {
 public:
  /// @param level that the chunks are compressed with, for the dataset's description
  CompressedShard(std::filesystem::path const& file, ShardLayout const& layout,
                  std::int64_t chunk_bytes, int level);
  /// @return where HDF5 put it
  ByteRange put(std::size_t run, std::size_t state, std::int64_t chunk,
                std::vector<char> const& stored);
  /// Durable. @return the bytes of the file
  std::int64_t finish();

 private:
  std::filesystem::path path_;
  ShardLayout const& layout_;
  h5::Id file_;
  h5::Id dataset_;  ///< the one that is being written
  std::size_t run_ = 0, state_ = 0;
  std::int64_t chunk_numel_ = 0, chunk_bytes_;
};

}  // namespace tessera::checkpoint::detail
