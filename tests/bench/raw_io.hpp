#pragma once
/// Plain reads and writes to compare with: 4 MiB at a time, flushed, through the page cache or
/// next to it.

#include <fcntl.h>
#include <sys/mman.h>
#include <unistd.h>

#include <algorithm>
#include <cerrno>
#include <cstdlib>
#include <cstring>
#include <filesystem>
#include <memory>

#include "tessera/core/error.hpp"

namespace tessera::bench {

inline constexpr std::size_t part = std::size_t{4} << 20;

inline void must(bool ok, char const* what) {
  if (!ok) throw IoError(with_errno(what, errno));
}

/// Aligned for direct transfers; on huge pages, with which the disk takes larger requests.
inline char* transfer_buffer() {
  static std::unique_ptr<char, decltype(&std::free)> const buffer = [] {
    auto* const data = static_cast<char*>(std::aligned_alloc(std::size_t{2} << 20, part));
    (void)madvise(data, part, MADV_HUGEPAGE);
    std::memset(data, 'x', part);
    return std::unique_ptr<char, decltype(&std::free)>(data, &std::free);
  }();
  return buffer.get();
}

enum class Cache { used, passed_by };

inline void raw_write(std::filesystem::path const& file, std::size_t bytes,
                      Cache cache = Cache::used) {
  int const fd =
      ::open(file.c_str(), O_CREAT | O_WRONLY | (cache == Cache::passed_by ? O_DIRECT : 0), 0644);
  must(fd >= 0, "open");
  bytes = (bytes + 4095) / 4096 * 4096;
  for (std::size_t done = 0; done < bytes; done += part)
    must(::write(fd, transfer_buffer(), std::min(part, bytes - done)) > 0, "write");
  must(::fsync(fd) == 0, "fsync");
  ::close(fd);
}

inline void raw_read(std::filesystem::path const& file) {
  int const fd = ::open(file.c_str(), O_RDONLY);
  must(fd >= 0, "open");
  ::posix_fadvise(fd, 0, 0, POSIX_FADV_SEQUENTIAL);
  while (::read(fd, transfer_buffer(), part) > 0) {
  }
  ::close(fd);
}

/// Everything below a directory is only on the disk afterwards.
inline void drop_cache(std::filesystem::path const& directory) {
  for (auto const& entry : std::filesystem::recursive_directory_iterator(directory)) {
    int const fd = ::open(entry.path().c_str(), O_RDONLY);
    if (fd < 0) continue;
    ::fsync(fd);
    ::posix_fadvise(fd, 0, 0, POSIX_FADV_DONTNEED);
    ::close(fd);
  }
}

}  // namespace tessera::bench
