#pragma once
/// Allocations that the ranks of a node share: files announced through the control segment and
/// mapped by all ranks.

#include <cstdint>
#include <memory>
#include <string>

#include "detail/node_control.hpp"
#include "detail/shared_heap.hpp"

namespace tessera::comm::detail {

class SharedAllocator {
 public:
  /// @p control and @p peers outlive the allocator.
  SharedAllocator(NodeControl& control, PeerLiveness const& peers, int rank, int size)
      : control_(control),
        peers_(peers),
        rank_(rank),
        size_(size),
        heap_(std::make_shared<SharedHeap>()) {}

  std::shared_ptr<void> allocate(Operation const& operation, std::string const& name,
                                 memory::Purpose purpose);
  SharedHeap const& heap() const { return *heap_; }

 private:
  enum class Outcome : std::int32_t { done, not_shareable, out_of_memory };
  Outcome agree_on(Operation const& operation, Outcome own, SharedFile const* file,
                   int& worst_rank);
  Outcome map_peers(Operation const& operation, SharedAllocation& allocation);

  NodeControl& control_;
  PeerLiveness const& peers_;
  int rank_, size_;
  std::shared_ptr<SharedHeap> heap_;  ///< owners of allocations hold it too
};

}  // namespace tessera::comm::detail
