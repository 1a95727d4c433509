#pragma once
/// Reading pieces of a checkpoint with every block checked. Files are read at the manifest's offsets, not through HDF5: nothing
/// in a damaged or hostile shard is interpreted.

#include <memory>
#include <vector>

#include "detail/file.hpp"
#include "tessera/checkpoint/manifest.hpp"

namespace tessera::checkpoint::detail {

/// Shards of a checkpoint, opened when first needed; at most a fixed number is open at a time.
class ShardFiles {
 public:
  /// Sizes::any: shards of another size are opened too, to see what of them is left.
  enum class Sizes { exact, any };
  explicit ShardFiles(Manifest const& manifest, Sizes sizes = Sizes::exact) : manifest_(manifest), sizes_(sizes), files_(manifest.shards.size()) {}
  /// @throws DataError when the shard is missing or has another size than the manifest says
  File const& open(int shard);

 private:
  Manifest const& manifest_;
  Sizes sizes_;
  std::vector<File> files_;
  std::vector<int> open_;  ///< oldest first
};

/// One state of one piece.
struct PieceState {
  TensorRecord const* tensor = nullptr;
  PieceRecord const* piece = nullptr;
  std::size_t state = 0;
};

/// Reads checksum block @p block of a piece's state to @p out and checks it. @return its bytes
/// @throws DataError naming file, tensor, state and block
std::int64_t read_block(Manifest const& manifest, ShardFiles& files, PieceState const& what, std::int64_t block, void* out);

}  // namespace tessera::checkpoint::detail
