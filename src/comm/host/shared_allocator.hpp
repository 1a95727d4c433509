#pragma once
/// Allocations that the ranks of a node share: each rank creates a file, posts its address in the
/// control segment, and maps the files of the others.

#include <cstdint>
#include <memory>
#include <string>

#include "host/node_control.hpp"
#include "host/shared_heap.hpp"

namespace tessera::comm::detail {

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
