#pragma once
/// Large writes at chosen places of a file that exists, beside the page cache where that pays.

#include <cstdint>
#include <cstdlib>
#include <filesystem>
#include <memory>

#include "format/detail/file.hpp"

namespace tessera::checkpoint::detail {

/// Whole pages of large writes go from an aligned buffer straight to the disk, on local file
/// systems (ext4, XFS, Btrfs): a core copies pages at a few GB/s and the cache then holds what
/// nobody reads. All else, other file systems and those that refuse go through the cache, with
/// write-back started at once. No page is written both ways.
class BlockWriter {
 public:
  explicit BlockWriter(std::filesystem::path const& path);
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
