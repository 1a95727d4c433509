#pragma once
/// Large writes at given offsets of an existing file, with direct I/O where that is faster.

#include <array>
#include <atomic>
#include <condition_variable>
#include <cstddef>
#include <cstdint>
#include <cstdlib>
#include <exception>
#include <filesystem>
#include <memory>
#include <mutex>
#include <thread>
#include <vector>

#include "format/detail/file.hpp"

namespace tessera::checkpoint::detail {

/// Full pages of large writes go from aligned buffers straight to the disk (O_DIRECT), on local
/// file systems (ext4, XFS, Btrfs): a core copies pages at a few GB/s and the cache then holds
/// pages that are not read again. All else, other file systems and those that refuse go through the
/// cache, with write-back started immediately. No page is written both ways.
///
/// A thread writes one buffer while the caller fills the other, so that the disk does not wait for
/// the caller's checksums. Small writes are kept until the end: through the cache they would wait
/// for the direct write that the file system has in hand.
class DirectWriter {
 public:
  explicit DirectWriter(std::filesystem::path const& path);
  DirectWriter(DirectWriter const&) = delete;
  DirectWriter& operator=(DirectWriter const&) = delete;
  ~DirectWriter();

  File& file() { return file_; }
  /// The data is read before this returns. @throws IoError also for an earlier write
  void write(void const* data, std::int64_t bytes, std::int64_t offset);
  /// Durable, and both descriptors closed.
  void finish();

 private:
  struct Part {
    std::unique_ptr<char, decltype(&std::free)> buffer{nullptr, &std::free};
    std::int64_t bytes = 0, offset = 0;
  };
  void keep(char const* data, std::int64_t bytes, std::int64_t offset);
  void write_kept();
  void hand_over(char const* data, std::int64_t bytes, std::int64_t offset);
  /// Waits until at most @p parts are not written. @throws what failed in writing
  void wait_for_parts(std::size_t parts, std::unique_lock<std::mutex>& lock);
  void write_parts();
  void write_part(Part const& part);

  File file_, direct_;
  std::atomic<bool> refused_{false};  ///< by the file system, after it was opened
  std::array<Part, 2> parts_;
  struct Kept {
    std::int64_t offset = 0, bytes = 0;
  };
  std::vector<Kept> kept_;
  std::vector<char> kept_bytes_;  ///< kept bytes of all of them, in order
  std::mutex mutex_;
  std::condition_variable changed_;
  std::size_t filled_ = 0, written_ = 0;  ///< parts; part k is in parts_[k % 2]
  bool stopping_ = false;
  std::exception_ptr error_;
  std::thread thread_;
};

}  // namespace tessera::checkpoint::detail
