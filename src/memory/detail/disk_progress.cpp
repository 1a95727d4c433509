#include "detail/disk_progress.hpp"

#include <cerrno>

#include "tessera/memory/swap_file.hpp"

namespace tessera::memory::detail {
namespace {

constexpr int most_attempts = 16;

}  // namespace

/// A request that continues in the middle of a page would not be aligned: that page is repeated.
int DiskProgress::advance(ssize_t result) {
  bool const is_interrupted = result == -EINTR || result == -EAGAIN;
  if (result < 0 && !is_interrupted) return static_cast<int>(-result);
  auto const bytes = is_interrupted ? 0 : static_cast<std::size_t>(result);
  bool const is_last = bytes == remaining();
  std::size_t const usable = is_last ? bytes : bytes / swap_alignment * swap_alignment;
  completed_ += usable;
  attempts_ = usable > 0 ? 0 : attempts_ + 1;
  return attempts_ < most_attempts || remaining() == 0 ? 0 : EIO;
}

}  // namespace tessera::memory::detail
