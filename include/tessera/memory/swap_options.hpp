#pragma once
/// How values that drives hold instead of memory are transferred.

#include <cstddef>
#include <filesystem>
#include <string>
#include <vector>

namespace tessera::memory {

/// One directory for each drive.
using SwapDirectories = std::vector<std::filesystem::path>;

/// How transfers are cut and how many requests are in flight: DeepSpeed's block "aio".
struct SwapOptions {
  SwapDirectories directories = {};
  std::size_t block_size = std::size_t{1} << 20;  ///< bytes of one request
  int queue_depth = 8;                            ///< requests in flight, in each direction
  int parallelism = 1;                            ///< threads that share a transfer
  /// Whether each request is given to the system by a call of its own.
  enum class Submit { batch, single } submit = Submit::batch;
  /// Whether new requests are submitted before all earlier ones have completed.
  enum class Events { overlap, wait } events = Events::overlap;
};

/// What performs the transfers of a process.
struct SwapMethod {
  bool is_uring = false;  ///< io_uring, else threads that call pread and pwrite
  std::string why;        ///< io_uring is not used; else empty
};

}  // namespace tessera::memory
