#pragma once
/// Large writes at given offsets of an existing file, with direct I/O where that is faster.

#include <cstdint>
#include <cstdlib>
#include <filesystem>
#include <memory>

#include "format/detail/file.hpp"

namespace tessera::checkpoint::detail {

/// Full pages of large writes go from an aligned buffer straight to the disk (O_DIRECT), on local
/// file systems (ext4, XFS, Btrfs): a core copies pages at a few GB/s and the cache then holds
/// pages that are not read again. All else, other file systems and those that refuse go through the
/// cache, with write-back started immediately. No page is written both ways.
class DirectWriter {
 public:
  explicit DirectWriter(std::filesystem::path const& path);
  File& file() { return file_; }
  void write(void const* data, std::int64_t bytes, std::int64_t offset);
  /// Durable, and both descriptors closed.
  void finish();

 private:
  std::int64_t write_direct(char const* data, std::int64_t bytes, std::int64_t offset);
  File file_, direct_;
  std::unique_ptr<char, decltype(&std::free)> buffer_{nullptr, &std::free};
};

}  // namespace tessera::checkpoint::detail
