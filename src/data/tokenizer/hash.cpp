#include "tokenizer/hash.hpp"

#include <xxhash.h>

#include <cerrno>
#include <cstdio>
#include <new>
#include <vector>

#include "tessera/core/error.hpp"
#include "tessera/core/files.hpp"

namespace tessera::data::detail {

std::uint64_t xxh3(void const* bytes, std::size_t size) { return XXH3_64bits(bytes, size); }

struct Xxh3Stream::State {
  XXH3_state_t* xxh;
};

Xxh3Stream::Xxh3Stream() : state_(std::make_unique<State>(State{XXH3_createState()})) {
  if (!state_->xxh) throw std::bad_alloc();
  XXH3_64bits_reset(state_->xxh);
}
Xxh3Stream::~Xxh3Stream() { XXH3_freeState(state_->xxh); }
void Xxh3Stream::update(void const* bytes, std::size_t size) {
  XXH3_64bits_update(state_->xxh, bytes, size);
}
std::uint64_t Xxh3Stream::digest() const { return XXH3_64bits_digest(state_->xxh); }

std::uint64_t xxh3_of_file(std::filesystem::path const& file) {
  std::unique_ptr<std::FILE, int (*)(std::FILE*)> const in(std::fopen(file.c_str(), "rb"),
                                                           &std::fclose);
  TESSERA_VALIDATE(in, IoError, path_error("cannot read", file, errno));
  std::vector<char> buffer(std::size_t{1} << 20);
  Xxh3Stream hash;
  while (std::size_t const got = std::fread(buffer.data(), 1, buffer.size(), in.get()))
    hash.update(buffer.data(), got);
  TESSERA_VALIDATE(!std::ferror(in.get()), IoError, path_error("cannot read", file, errno));
  return hash.digest();
}

}  // namespace tessera::data::detail
