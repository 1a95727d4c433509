#pragma once
/// XXH3-64 over bytes, in one call or streamed.

#include <cstddef>
#include <cstdint>
#include <filesystem>
#include <memory>
#include <string_view>

namespace tessera::data::detail {

std::uint64_t xxh3(void const* bytes, std::size_t size);
inline std::uint64_t xxh3(std::string_view bytes) { return xxh3(bytes.data(), bytes.size()); }

class Xxh3Stream {
 public:
  Xxh3Stream();
  ~Xxh3Stream();
  Xxh3Stream(Xxh3Stream const&) = delete;
  Xxh3Stream& operator=(Xxh3Stream const&) = delete;
  void update(void const* bytes, std::size_t size);
  std::uint64_t digest() const;

 private:
  struct State;
  std::unique_ptr<State> state_;
};

/// XXH3-64 of a file's bytes. @throws IoError.
std::uint64_t xxh3_of_file(std::filesystem::path const& file);

}  // namespace tessera::data::detail
