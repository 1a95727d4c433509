#include "format/detail/chunk_reader.hpp"

#include <zlib.h>

#include <algorithm>
#include <cstring>

#include "format/detail/checksum.hpp"
#include "tessera/core/error.hpp"

namespace tessera::checkpoint::detail {
namespace {

constexpr std::size_t max_open_files = 64;

}  // namespace

File const& ShardFiles::open(int shard) {
  auto& file = files_[static_cast<std::size_t>(shard)];
  if (file.is_open()) return file;
  auto const path = manifest_.shard_path(shard);
  std::error_code error;
  TESSERA_VALIDATE(std::filesystem::exists(path, error), DataError, "shard ", path.string(),
                   " is missing; ", manifest_.file().string(),
                   " names it: restore the file or use another checkpoint");
  if (open_.size() >= max_open_files) {
    files_[static_cast<std::size_t>(open_.front())] = File();
    open_.erase(open_.begin());
  }
  File opened = File::open_read(path, File::Links::refuse);
  std::int64_t const expected = manifest_.shards[static_cast<std::size_t>(shard)].bytes,
                     found = opened.size();
  TESSERA_VALIDATE(found == expected || sizes_ == Sizes::any, DataError, "shard ", path.string(),
                   " has ", found, " bytes, ", expected, " were written; it is ",
                   found < expected ? "truncated" : "changed",
                   ": restore the file or use another checkpoint");
  opened.expect_sequential();
  file = std::move(opened);
  open_.push_back(shard);
  return file;
}

ByteRange location_of(Manifest const& manifest, ExtentState const& what, std::int64_t chunk) {
  auto const& location = what.extent->states[what.state];
  if (!location.chunks.empty()) return location.chunks[static_cast<std::size_t>(chunk)];
  std::int64_t const first = chunk * manifest.checksum_chunk;
  return {location.file_offset + first,
          std::min(manifest.checksum_chunk, what.extent->numel * 4 - first)};
}

std::int64_t read_chunk(Manifest const& manifest, ShardFiles& files, ExtentState const& what,
                        std::int64_t chunk, void* out) {
  std::int64_t const bytes =
      std::min(manifest.checksum_chunk, what.extent->numel * 4 - chunk * manifest.checksum_chunk);
  auto const& location = what.extent->states[what.state];
  ByteRange const place = location_of(manifest, what, chunk);
  File const& file = files.open(what.extent->shard);
  auto const where = [&] {
    return concat("shard ", file.path().string(), " is damaged: ", manifest.states[what.state],
                  " of tensor ", what.tensor->name, ", bytes ", place.offset, " to ", place.end());
  };
  files.bytes_read_ += place.bytes;
  if (location.chunks.empty()) {
    file.read(out, bytes, place.offset);
  } else {
    files.stored_.resize(static_cast<std::size_t>(place.bytes));
    file.read(files.stored_.data(), place.bytes, place.offset);
    TESSERA_VALIDATE(
        decompress_chunk(files.stored_, std::min(what.extent->numel, manifest.checksum_chunk / 4),
                         out, bytes, files.scratch_),
        DataError, where(),
        ", is no compressed chunk of its elements; restore the file or use another checkpoint");
  }
  std::uint64_t const expected = location.xxh3[static_cast<std::size_t>(chunk)],
                      found = xxh3(out, bytes);
  TESSERA_VALIDATE(found == expected, DataError, where(), ", has XXH3 ", to_hex({found}), " where ",
                   to_hex({expected}), " was written; restore the file or use another checkpoint");
  return bytes;
}

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
