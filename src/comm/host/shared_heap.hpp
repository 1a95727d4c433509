#pragma once
/// The shared allocations of a rank: its own memory and its mappings of the peers' memory of the
/// same collective allocation.

#include <cstddef>
#include <cstdint>
#include <map>
#include <memory>
#include <mutex>
#include <optional>
#include <string>
#include <vector>

#include "host/node_control.hpp"
#include "host/shared_memory.hpp"
#include "tessera/memory/buffer.hpp"

namespace tessera::comm::detail {

/// Made by one collective call, so that its number is the same on every rank.
struct SharedAllocation {
  std::int64_t number = 0;
  Mapping own_mapping;
  std::vector<Mapping> peers;  ///< by rank, read-only; not mapped for this rank
};

class SharedHeap : public std::enable_shared_from_this<SharedHeap> {
 public:
  /// Numbers the allocation and counts it in the memory tracker. The returned owner frees it.
  std::shared_ptr<void> add(SharedAllocation allocation, std::string name, memory::Purpose purpose);

  struct Position {
    std::int64_t number = 0;
    std::uint64_t offset_bytes = 0;
  };
  /// The allocation that contains @p data, if any, and the offset in it.
  std::optional<Position> find(std::byte const* data) const;
  /// The address of the same position in the memory of @p rank.
  std::byte const* peer_address(int rank, Position position) const;

 private:
  void release(std::byte const* data, std::string const& name, memory::Purpose purpose) noexcept;

  mutable std::mutex mutex_;
  std::map<std::byte const*, SharedAllocation> by_address_;
  std::map<std::int64_t, std::byte const*> by_number_;
  std::int64_t next_number_ = 0;
};

/// Allocations that the ranks of a node share: each rank creates a file, posts its address in the
/// control segment, and maps the files of the others.
class SharedAllocator {
 public:
  /// @p control and @p peers outlive the allocator.
  SharedAllocator(NodeControl& control, PeerLiveness const& peers, Group group)
      : control_(control), peers_(peers), group_(group), heap_(std::make_shared<SharedHeap>()) {}

  /// Shared memory when all ranks can map it, else private memory on all ranks. Collective.
  /// @throws OutOfMemoryError on every rank when one rank has too little memory
  /// Shared memory when all ranks can map it, else private memory on all ranks. Collective.
  /// @throws OutOfMemoryError on every rank when one rank has too little memory
  std::shared_ptr<void> allocate(Operation const& operation, std::string const& name,
                                 memory::Purpose purpose);
  SharedHeap const& heap() const { return *heap_; }

 private:
  enum class Outcome : std::int32_t { done, not_shareable, out_of_memory };
  /// The worst outcome of all ranks and the lowest rank that had it. Posts the address of @p file.
  Outcome worst_outcome(Operation const& operation, Outcome own, SharedFile const* file,
                        int& worst_rank);
  Outcome map_peers(Operation const& operation, SharedAllocation& allocation);

  NodeControl& control_;
  PeerLiveness const& peers_;
  Group group_;
  std::shared_ptr<SharedHeap> heap_;  ///< the owners of allocations hold it too
};

}  // namespace tessera::comm::detail
