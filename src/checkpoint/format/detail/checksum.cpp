#include "format/detail/checksum.hpp"

#include <xxhash.h>

namespace tessera::checkpoint::detail {

std::uint64_t xxh3(void const* data, std::int64_t bytes) {
  return XXH3_64bits(data, static_cast<std::size_t>(bytes));
}

std::int64_t checksum_chunk_for(std::int64_t total_bytes) {
  std::int64_t chunk = smallest_checksum_chunk;
  while (chunk < largest_checksum_chunk && total_bytes / chunk > 1'000'000) chunk *= 2;
  return chunk;
}

std::string to_hex(std::vector<std::uint64_t> const& sums) {
  static constexpr char digits[] = "0123456789abcdef";
  std::string text;
  text.reserve(sums.size() * 16);
  for (std::uint64_t const sum : sums)
    for (int shift = 60; shift >= 0; shift -= 4) text.push_back(digits[(sum >> shift) & 15]);
  return text;
}

bool from_hex(std::string_view text, std::vector<std::uint64_t>& sums) {
  if (text.size() % 16 != 0) return false;
  sums.assign(text.size() / 16, 0);
  for (std::size_t i = 0; i < text.size(); ++i) {
    char const c = text[i];
    int const digit = c >= '0' && c <= '9' ? c - '0' : c >= 'a' && c <= 'f' ? c - 'a' + 10 : -1;
    if (digit < 0) return false;
    sums[i / 16] = sums[i / 16] << 4 | static_cast<std::uint64_t>(digit);
  }
  return true;
}

}  // namespace tessera::checkpoint::detail
