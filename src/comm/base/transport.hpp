#pragma once
/// The blocking collectives below QueuedCollectives. Its worker thread calls every function except
/// abandon(), in the same order on all ranks, with checked arguments.

#include <atomic>
#include <cstddef>
#include <memory>
#include <string>

#include "base/operation.hpp"
#include "base/sums.hpp"
#include "tessera/comm/base/collectives.hpp"
#include "tessera/memory/buffer.hpp"

namespace tessera::comm::detail {

class Transport {
 public:
  virtual ~Transport() = default;
  virtual int rank() const = 0;
  virtual int size() const = 0;
  /// @p peer is a rank of the group. True where all are on one node.
  virtual bool is_on_node(int /*peer*/) const { return true; }
  /// "loopback", "mpi", "shared memory"
  virtual char const* name() const = 0;

  virtual std::shared_ptr<void> allocate(Operation const& operation, std::string const& name,
                                         memory::Purpose purpose) = 0;
  virtual void broadcast(Operation const& operation, std::byte* data) = 0;
  virtual void all_reduce(Operation const& operation, std::byte* data) = 0;
  virtual void reduce(Operation const& operation, std::byte* data) = 0;
  virtual void reduce_scatter(Operation const& operation, std::byte const* in,
                              Target const& out) = 0;
  /// @p in is the first element of this rank's shard; null: the shard is at its place in @p out.
  virtual void all_gather(Operation const& operation, std::byte const* in, std::byte* out) = 0;
  virtual void scatter(Operation const& operation, std::byte const* in, std::byte* out) = 0;
  virtual void gather(Operation const& operation, std::byte const* in, std::byte* out) = 0;
  virtual void all_to_all(Operation const& operation, std::byte const* in, std::byte* out) = 0;
  virtual void all_to_all(Operation const& operation, std::byte const* in, Parts const& send,
                          std::byte* out, Parts const& receive) = 0;
  virtual void send(Operation const& operation, std::byte const* data) = 0;
  virtual void receive(Operation const& operation, std::byte* data) = 0;
  /// Null for a negative color.
  virtual std::unique_ptr<Transport> split(Operation const& operation,
                                           topology::RankGroup const& group) = 0;
  virtual void barrier(Operation const& operation) = 0;

  /// Any thread may call it: operations in flight fail when they next wait, and this rank takes
  /// part in no further operation.
  virtual void abandon() { abandoned_.store(true, std::memory_order_relaxed); }
  bool abandoned() const { return abandoned_.load(std::memory_order_relaxed); }

 private:
  std::atomic<bool> abandoned_{false};
};

/// Memory that no other process maps, counted by the memory tracker.
std::shared_ptr<void> allocate_private(std::string const& name, memory::Purpose purpose,
                                       std::size_t bytes);

}  // namespace tessera::comm::detail
