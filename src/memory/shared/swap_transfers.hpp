#pragma once
/// Transfers between swap files and memory that run while others compute.

#include <memory>
#include <string>
#include <vector>

#include "tessera/memory/queue.hpp"
#include "tessera/memory/swap_file.hpp"
#include "tessera/memory/swap_options.hpp"

namespace tessera::memory {

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
