#pragma once
/// Chunks of fp32 elements as HDF5's filters "shuffle" and "deflate" store them: first byte of all
/// elements, second byte of all elements, and so on, as one zlib stream.

#include <cstdint>
#include <vector>

namespace tessera::checkpoint::detail {

/// Compresses the first @p numel of @p chunk_numel elements; the rest of the chunk is zeros. @param
/// level 1 (quick) to 9 (small)
void compress_chunk(float const* data, std::int64_t numel, std::int64_t chunk_numel, int level,
                    std::vector<char>& stored);
/// More bytes than a chunk of so many elements can take.
std::int64_t max_stored_bytes(std::int64_t chunk_numel);
/// The first @p bytes of the chunk's elements. Nothing beyond the chunk is ever written, whatever
/// the stream says.
/// @return false unless the stream is complete and holds exactly the chunk
bool decompress_chunk(std::vector<char> const& stored, std::int64_t chunk_numel, void* out,
                      std::int64_t bytes, std::vector<char>& scratch);

}  // namespace tessera::checkpoint::detail
