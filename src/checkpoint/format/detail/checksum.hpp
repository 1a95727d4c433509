#pragma once
/// XXH3 (64 bit) of chunks of data.

#include <cstdint>
#include <string>
#include <string_view>
#include <vector>

#include "tessera/core/rounding.hpp"

namespace tessera::checkpoint::detail {

std::uint64_t xxh3(void const* data, std::int64_t bytes);

constexpr std::int64_t smallest_checksum_chunk = std::int64_t{4} << 20;
constexpr std::int64_t largest_checksum_chunk = std::int64_t{32} << 20;

/// Bytes of a checksum chunk: 4 MiB, more when a checkpoint would need over a million checksums.
std::int64_t checksum_chunk_for(std::int64_t total_bytes);
constexpr std::int64_t chunk_count(std::int64_t bytes, std::int64_t chunk) {
  return ceil_divide(bytes, chunk);
}

/// Checksums as 16 lower-case hexadecimal digits each, one after the other, and back. The latter is
/// false for anything else.
std::string to_hex(std::vector<std::uint64_t> const& sums);
bool from_hex(std::string_view text, std::vector<std::uint64_t>& sums);

}  // namespace tessera::checkpoint::detail
