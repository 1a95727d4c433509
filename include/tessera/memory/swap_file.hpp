#pragma once
/// Values that a drive holds instead of memory: a file without a name, and transfers between it and
/// memory that run while others compute.

#include <cstddef>
#include <filesystem>
#include <functional>
#include <memory>
#include <string>
#include <vector>

#include "tessera/memory/queue.hpp"

namespace tessera::memory {

/// Offsets, addresses and sizes of transfers are multiples of this many bytes (O_DIRECT).
inline constexpr std::size_t swap_alignment = 4096;

/// A file of zeros that has no name: the system removes it when this process ends, however it ends,
/// and no other process can open it. Transfers bypass the page cache where the file system can
/// (O_DIRECT).
class SwapFile {
 public:
  /// @param name of the values, for messages
  /// @param bytes rounded up to swap_alignment and reserved on the drive
  /// @throws IoError naming @p directory and its free bytes when the file cannot be made
  SwapFile(std::string name, std::filesystem::path const& directory, std::size_t bytes);
  SwapFile(SwapFile const&) = delete;
  ~SwapFile();

  std::string const& name() const { return name_; }
  std::size_t bytes() const { return bytes_; }
  bool is_direct() const { return direct_ >= 0; }

  /// The values as memory, whose pages the system reads from the drive and writes to it as it needs
  /// memory. For accesses outside the step: first wait for the transfers, afterwards flush().
  void* data() const { return data_; }
  /// Writes what changed through data() to the drive and gives the pages up. Transfers that start
  /// later see it.
  /// @throws IoError
  void flush() const;

  /// Block the calling thread. @throws IoError naming the values, the place and the system's reason
  void read(std::size_t offset, void* to, std::size_t bytes) const;
  void write(std::size_t offset, void const* from, std::size_t bytes) const;

 private:
  [[noreturn]] void fail(char const* what, std::size_t offset, std::size_t bytes, int reason) const;
  std::string name_;
  std::filesystem::path directory_;
  std::size_t bytes_ = 0;
  int file_ = -1, direct_ = -1;  ///< the second one bypasses the page cache
  void* data_ = nullptr;
};

/// How transfers are cut and how many run at a time.
struct SwapOptions {
  std::filesystem::path directory;
  std::size_t block_size = std::size_t{1} << 20;  ///< bytes of one request
  int queue_depth = 8;                            ///< requests at a time, in each direction
};

/// Reads and writes between swap files and memory, each direction by threads of its own.
class SwapTransfers {
 public:
  explicit SwapTransfers(SwapOptions const& options);

  /// Work of several threads; empty: done.
  using Pending = std::vector<Event>;
  /// The memory is not touched before the events of @p after have happened.
  Pending read(SwapFile const& file, std::size_t offset, void* to, std::size_t bytes,
               Pending const& after);
  Pending write(SwapFile const& file, std::size_t offset, void const* from, std::size_t bytes,
                Pending const& after);
  /// Blocks until all transfers that were started have ended. @throws their first error
  void wait() const;

 private:
  using Workers = std::vector<std::unique_ptr<Queue>>;
  Pending start(Workers& workers, std::size_t bytes, Pending const& after,
                std::function<void(std::size_t begin, std::size_t bytes)> const& block);
  SwapOptions options_;
  Workers readers_, writers_;
};

/// Makes later work of @p queue wait for @p pending.
void order_before(Queue& queue, SwapTransfers::Pending const& pending);

}  // namespace tessera::memory
