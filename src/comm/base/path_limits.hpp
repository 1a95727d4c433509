#pragma once
/// From which sizes on the ranks of a node exchange data in which way (docs/explanation/
/// collectives.md). Measured per vendor with tests/bench/collectives_bench; the vendor decides and
/// no clock, so that equal processors take the same way.

#include <cstddef>

namespace tessera::comm::detail {

/// Bytes that a rank contributes, at most, for each way. 0: never.
struct PathLimits {
  /// A copy to the staging buffer and one phase; in an all-reduce every rank reduces all elements.
  std::size_t small = 0, small_reduction = 0;
  /// Private memory is copied twice, through the staging buffers, and not once by the kernel.
  std::size_t staged = 0;
  /// An all-reduce of private memory, and of shared memory, goes through the staging buffers: peers
  /// have just written what a rank reads there, and staging moves those lines between the cores
  /// less often.
  std::size_t staged_reduction = 0, staged_shared_reduction = 0;
  /// Only the readers copy in a broadcast. In a larger one the root writes a part to each reader.
  std::size_t read_broadcast = 0;
  /// Bytes of each rank's private memory that are copied at a time while they are reduced.
  std::size_t copied_tile = 0;
  /// An all-reduce in place goes chunk by chunk: what a rank has reduced is copied while it is in a
  /// cache.
  std::size_t reduced_chunk = 0;
};

enum class Vendor { intel, other };

/// Returns the limits for groups of this many ranks on processors of this vendor.
PathLimits path_limits(Vendor vendor, int ranks);
/// Returns the limits on this processor.
PathLimits path_limits(int ranks);

/// Bytes from which on a copy on this processor writes past the caches. A smaller one may still be
/// in a cache when it is read.
std::size_t streamed_copy();

}  // namespace tessera::comm::detail
