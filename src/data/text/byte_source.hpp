#pragma once
/// The bytes of a file in order: as they are, or decompressed (gzip, zstd).

#include <cstddef>
#include <cstdint>
#include <filesystem>
#include <memory>

namespace tessera::data::detail {

class ByteSource {
 public:
  virtual ~ByteSource() = default;
  /// Reads up to @p bytes bytes; 0 at the end. @throws IoError, or DataError for damaged or
  /// truncated compressed data.
  virtual std::size_t read(char* out, std::size_t bytes) = 0;
  /// Bytes of the file read so far, as stored.
  virtual std::int64_t position() const = 0;
};

/// Detects the compression by the first bytes. @throws IoError if the file cannot be opened,
/// ConfigError for zstd in a build without libzstd.
std::unique_ptr<ByteSource> open_source(std::filesystem::path const& file);

}  // namespace tessera::data::detail
