#pragma once
/// Reading extents of a checkpoint with every chunk checked, and the codec of compressed chunks:
/// fp32 elements as HDF5's filters "shuffle" and "deflate" store them (first byte of all elements,
/// second byte of all elements, and so on, as one zlib stream). Files are read at the manifest's
/// offsets, not through HDF5: nothing in a damaged or hostile shard is interpreted.

#include <cstdint>
#include <memory>
#include <vector>

#include "format/detail/file.hpp"
#include "tessera/checkpoint/format/manifest.hpp"

namespace tessera::checkpoint::detail {

struct ExtentState;

/// Shards of a checkpoint, opened when first needed; at most a fixed number is open at a time.
class ShardFiles {
 public:
  /// Sizes::any: shards of another size are opened too, to see what of them is left.
  enum class Sizes { exact, any };
  explicit ShardFiles(Manifest const& manifest, Sizes sizes = Sizes::exact)
      : manifest_(manifest), sizes_(sizes), files_(manifest.shards.size()) {}
  /// @throws DataError when the shard is missing or has another size than the manifest says
  File const& open(int shard);

  std::int64_t bytes_read() const { return bytes_read_; }

 private:
  friend std::int64_t read_chunk(Manifest const&, ShardFiles&, ExtentState const&, std::int64_t,
                                 void*);
  Manifest const& manifest_;
  Sizes sizes_;
  std::vector<File> files_;
  std::vector<int> open_;  ///< oldest first
  std::int64_t bytes_read_ = 0;
  std::vector<char> stored_,
      scratch_;  ///< a compressed chunk, and its elements before they are put together
};

/// One state of one extent.
struct ExtentState {
  TensorRecord const* tensor = nullptr;
  ExtentRecord const* extent = nullptr;
  std::size_t state = 0;
};

/// Where checksum chunk @p chunk is in the shard: its elements, or the chunk they are compressed
/// into.
ByteRange location_of(Manifest const& manifest, ExtentState const& what, std::int64_t chunk);

/// Reads checksum chunk @p chunk of an extent's state to @p out and checks it. @return its bytes
/// @throws DataError naming file, tensor, state and chunk
std::int64_t read_chunk(Manifest const& manifest, ShardFiles& files, ExtentState const& what,
                        std::int64_t chunk, void* out);

/// Compresses the first @p numel of @p chunk_numel elements; the rest of the chunk is zeros. @param
/// level 1 (quick) to 9 (small)
void compress_chunk(float const* data, std::int64_t numel, std::int64_t chunk_numel, int level,
                    std::vector<char>& stored);
/// More bytes than a chunk of this many elements can take.
std::int64_t max_stored_bytes(std::int64_t chunk_numel);
/// The first @p bytes of the chunk's elements. Nothing beyond the chunk is ever written, whatever
/// the stream says.
/// @return false unless the stream is complete and holds exactly the chunk
bool decompress_chunk(std::vector<char> const& stored, std::int64_t chunk_numel, void* out,
                      std::int64_t bytes, std::vector<char>& scratch);

}  // namespace tessera::checkpoint::detail
