#pragma once
/// Values that drives hold instead of memory: files without a name. Transfers that run while others
/// compute: memory/swap_transfers.hpp.

#include <sys/types.h>

#include <cstddef>
#include <filesystem>
#include <map>
#include <string>
#include <vector>

#include "tessera/memory/swap_options.hpp"

namespace tessera::memory {

/// Offsets, addresses and sizes of transfers are multiples of this many bytes (O_DIRECT).
inline constexpr std::size_t swap_alignment = 4096;

/// Whether the file system of @p directory keeps its files in memory (tmpfs, ramfs).
bool is_in_memory(std::filesystem::path const& directory);

/// Zeros in files that have no name: the system removes them when this process ends, however it
/// ends, and no other process can open them. Several directories take stripes in turn. Transfers
/// bypass the page cache where the file system can (O_DIRECT).
class SwapFile {
 public:
  /// @param name of the values, for messages
  /// @param bytes rounded up to swap_alignment and reserved on the drives
  /// @throws IoError naming the directory and its free bytes when a file cannot be made; makes none
  /// while this thread plans (BufferPlanning)
  SwapFile(std::string name, SwapDirectories const& directories, std::size_t bytes);
  SwapFile(SwapFile const&) = delete;
  ~SwapFile();

  std::string const& name() const { return name_; }
  std::size_t bytes() const { return bytes_; }
  bool is_direct() const;
  /// Messages name the values from byte @p begin on.
  void label(std::size_t begin, std::string values) { labels_[begin] = std::move(values); }

  /// The values as memory, whose pages the system reads from the drives and writes to them as it
  /// needs memory. For accesses outside the step: first wait for the transfers, afterwards flush().
  void* data() const { return data_; }
  /// Writes what changed through data() to the drives and gives the pages up. Transfers that start
  /// later see it.
  /// @throws IoError
  void flush() const;

  enum class Access { read, write };
  /// Block the calling thread. @throws IoError naming the values, the place and the system's reason
  void read(std::size_t offset, void* to, std::size_t bytes) const {
    transfer(Access::read, offset, static_cast<std::byte*>(to), bytes);
  }
  void write(std::size_t offset, void const* from, std::size_t bytes) const {
    transfer(Access::write, offset, static_cast<std::byte*>(const_cast<void*>(from)), bytes);
  }

  /// The first part of a range that one drive has without a gap.
  struct Extent {
    int file = -1;
    off_t offset = 0;
    std::size_t bytes = 0;
  };
  Extent first_extent(std::size_t offset, std::size_t bytes) const;
  /// @throws IoError of a transfer that the system refused for @p reason (errno)
  [[noreturn]] void fail(Access access, std::size_t offset, std::size_t bytes, int reason) const;

 private:
  struct Drive {
    std::filesystem::path directory;
    int file = -1, direct = -1;  ///< the second one bypasses the page cache
  };
  void open(SwapDirectories const& directories);
  int reserve() const;
  int map();
  void close() noexcept;
  Drive const& drive_of(std::size_t offset) const;
  std::string drive_text() const;
  void transfer(Access access, std::size_t offset, std::byte* memory, std::size_t bytes) const;

  std::string name_;
  std::size_t bytes_ = 0, stripe_ = 0;
  std::vector<Drive> drives_;
  std::map<std::size_t, std::string> labels_;
  void* data_ = nullptr;
};

}  // namespace tessera::memory
