#pragma once
/// A thread that transfers between swap files and memory by io_uring.

#include <sys/types.h>

#include <cstddef>
#include <memory>
#include <string>
#include <vector>

#include "tessera/memory/queue.hpp"
#include "tessera/memory/swap_transfers.hpp"

namespace tessera::memory::detail {

struct DiskTransfer {
  SwapFile const* file = nullptr;
  SwapFile::Access access = SwapFile::Access::read;
  std::size_t offset = 0;
  std::byte* memory = nullptr;
  std::size_t bytes = 0;
  std::vector<Event> after;
};

class DiskRing {
 public:
  virtual ~DiskRing() = default;
  /// Transfers start in order of the calls. After one has failed, later ones are dropped and report
  /// its error.
  virtual Event start(DiskTransfer transfer) = 0;
  /// An event that happens when all transfers so far have ended.
  virtual Event record() = 0;
};

/// @param why set to the reason when the result is null: the system or this build has no io_uring
std::unique_ptr<DiskRing> make_disk_ring(std::string const& name, SwapOptions const& options,
                                         std::string& why);

/// Counts the bytes of a request that the system may complete in several parts.
class DiskProgress {
 public:
  explicit DiskProgress(std::size_t bytes) : bytes_(bytes) {}
  std::size_t completed() const { return completed_; }
  std::size_t remaining() const { return bytes_ - completed_; }
  /// @param result bytes of the last part, or a negative errno
  /// @return 0 when the remaining bytes may be requested, else the system's reason
  int advance(ssize_t result);

 private:
  std::size_t bytes_, completed_ = 0;
  int attempts_ = 0;  ///< in a row that brought nothing
};

}  // namespace tessera::memory::detail
