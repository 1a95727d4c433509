#pragma once
/// How far a request to a drive has come.

#include <sys/types.h>

#include <cstddef>

namespace tessera::memory::detail {

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
