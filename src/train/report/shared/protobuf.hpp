#pragma once
/// The encoding of protocol buffers and the checksums of records, for the files of TensorBoard and
/// W&B: a field is its number and wire type, then the value.

#include <cstdint>
#include <cstring>
#include <string>

namespace tessera::train::protobuf {

/// Integers and floating-point numbers in little-endian order.
template <class Number>
std::string little_endian(Number number) {
  std::string out(sizeof number, '\0');
  std::memcpy(out.data(), &number, sizeof number);
  return out;
}

enum class Wire { varint = 0, bytes8 = 1, text = 2, bytes4 = 5 };

inline std::string varint(std::uint64_t value) {
  std::string out;
  for (; value >= 0x80; value >>= 7) out += static_cast<char>((value & 0x7F) | 0x80);
  return out + static_cast<char>(value);
}
inline std::string key(int field, Wire wire) {
  return varint(static_cast<std::uint64_t>(field) << 3 | static_cast<std::uint64_t>(wire));
}
inline std::string varint_field(int field, std::uint64_t value) {
  return key(field, Wire::varint) + varint(value);
}
/// A text, or a message in its encoded form.
inline std::string text_field(int field, std::string const& text) {
  return key(field, Wire::text) + varint(text.size()) + text;
}

/// CRC-32 of a reflected @p polynomial.
std::uint32_t crc32(std::string const& bytes, std::uint32_t polynomial);

}  // namespace tessera::train::protobuf
