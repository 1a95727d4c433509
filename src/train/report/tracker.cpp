#include "tessera/train/report/tracker.hpp"
#include "tessera/train/report/protobuf.hpp"

#include <unistd.h>

#include <array>
#include <chrono>
#include <cstdlib>

namespace tessera::train {
namespace {

/// FNV-1a (Fowler, Noll, Vo), 64 bits.
std::uint64_t hash_of(std::string const& text) {
  std::uint64_t hash = 0xcbf29ce484222325u;
  for (char const c : text) hash = (hash ^ static_cast<unsigned char>(c)) * 0x100000001b3u;
  return hash;
}

std::string hex_digits(std::uint64_t value, std::size_t count) {
  std::string out;
  for (std::size_t i = 0; i < count; ++i) out += "0123456789abcdef"[value >> 4 * i & 15];
  return out;
}

}  // namespace

std::uint32_t protobuf::crc32(std::string const& bytes, std::uint32_t polynomial) {
  std::array<std::uint32_t, 256> table{};
  for (std::uint32_t i = 0; i < table.size(); ++i) {
    table[i] = i;
    for (int bit = 0; bit < 8; ++bit)
      table[i] = (table[i] >> 1) ^ ((table[i] & 1) ? polynomial : 0u);
  }
  std::uint32_t crc = 0xFFFFFFFFu;
  for (char const c : bytes) crc = table[(crc ^ static_cast<unsigned char>(c)) & 0xFF] ^ (crc >> 8);
  return crc ^ 0xFFFFFFFFu;
}

std::string environment_variable(char const* name, std::string const& otherwise) {
  char const* const value = std::getenv(name);
  return value && *value ? value : otherwise;
}

RunId run_id(std::filesystem::path const& output_dir, std::size_t half) {
  std::error_code ignored;
  auto const path = std::filesystem::weakly_canonical(output_dir, ignored);
  auto const now = std::chrono::system_clock::now().time_since_epoch().count();
  return {hex_digits(hash_of(path.string()), half),
          hex_digits(hash_of(std::to_string(now) + "." + std::to_string(::getpid())), half)};
}

}  // namespace tessera::train
