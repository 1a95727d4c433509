#include "format/detail/chunk_codec.hpp"

#include <zlib.h>

#include <algorithm>
#include <cstring>

#include "tessera/core/error.hpp"

namespace tessera::checkpoint::detail {

void compress_chunk(float const* data, std::int64_t numel, std::int64_t chunk_numel, int level,
                    std::vector<char>& stored) {
  std::vector<char> shuffled(static_cast<std::size_t>(chunk_numel) * 4, '\0');
  auto const* bytes = reinterpret_cast<char const*>(data);
  for (std::int64_t b = 0; b < 4; ++b)
    for (std::int64_t i = 0; i < numel; ++i)
      shuffled[static_cast<std::size_t>(b * chunk_numel + i)] = bytes[i * 4 + b];
  uLongf size = static_cast<uLongf>(max_stored_bytes(chunk_numel));
  stored.resize(size);
  int const result = compress2(reinterpret_cast<Bytef*>(stored.data()), &size,
                               reinterpret_cast<Bytef const*>(shuffled.data()),
                               static_cast<uLong>(shuffled.size()), level);
  TESSERA_VALIDATE(result == Z_OK, InternalError, "zlib cannot compress ", shuffled.size(),
                   " bytes at level ", level, " (", result, ")");
  stored.resize(size);
}

std::int64_t max_stored_bytes(std::int64_t chunk_numel) {
  return static_cast<std::int64_t>(compressBound(static_cast<uLong>(chunk_numel) * 4));
}

bool decompress_chunk(std::vector<char> const& stored, std::int64_t chunk_numel, void* out,
                      std::int64_t bytes, std::vector<char>& scratch) {
  scratch.resize(static_cast<std::size_t>(chunk_numel) * 4);
  uLongf size = static_cast<uLongf>(scratch.size());
  uLong used = static_cast<uLong>(stored.size());
  int const result = uncompress2(reinterpret_cast<Bytef*>(scratch.data()), &size,
                                 reinterpret_cast<Bytef const*>(stored.data()), &used);
  if (result != Z_OK || size != scratch.size() || used != stored.size()) return false;
  auto* to = static_cast<char*>(out);
  for (std::int64_t b = 0; b < 4; ++b)
    for (std::int64_t i = 0; i < bytes / 4; ++i)
      to[i * 4 + b] = scratch[static_cast<std::size_t>(b * chunk_numel + i)];
  return true;
}

}  // namespace tessera::checkpoint::detail
