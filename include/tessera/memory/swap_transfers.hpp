#pragma once
/// Transfers between swap files and memory that run while others compute.

#include <memory>
#include <string>
#include <vector>

#include "tessera/memory/queue.hpp"
#include "tessera/memory/swap_file.hpp"

namespace tessera::memory {

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

/// Reads and writes between swap files and memory, each direction in order of the calls by threads
/// of its own. They use io_uring where the system has it.
class SwapTransfers {
 public:
  explicit SwapTransfers(SwapOptions const& options);
  SwapTransfers(SwapTransfers&&) noexcept;
  ~SwapTransfers();

  /// Work of several threads; empty: done.
  using Pending = std::vector<Event>;
  /// The memory is not touched before the events of @p after have happened.
  Pending read(SwapFile const& file, std::size_t offset, void* to, std::size_t bytes,
               Pending const& after);
  Pending write(SwapFile const& file, std::size_t offset, void const* from, std::size_t bytes,
                Pending const& after);
  /// Blocks until all transfers that were started have ended. @throws their first error
  void wait() const;
  SwapMethod const& method() const { return method_; }

  class Engine;

 private:
  SwapMethod method_;
  std::unique_ptr<Engine> engine_;
};

/// Makes later work of @p queue wait for @p pending.
void order_before(Queue& queue, SwapTransfers::Pending const& pending);

/// An event that happens when all of @p events have happened, with their first error.
Event joined(std::vector<Event> events);

}  // namespace tessera::memory
