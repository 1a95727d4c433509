#include "host/shared_heap.hpp"

#include <utility>

#include "tessera/core/error.hpp"

namespace tessera::comm::detail {

std::shared_ptr<void> SharedHeap::add(SharedAllocation allocation, std::string name,
                                      memory::Purpose purpose) {
  std::byte* const data = allocation.own.data();
  memory::MemoryTracker::of_process().add(purpose, name, allocation.own.bytes());
  {
    std::lock_guard lock(mutex_);
    allocation.number = ++next_number_;
    by_number_.emplace(allocation.number, data);
    by_address_.emplace(data, std::move(allocation));
  }
  return {data, [heap = shared_from_this(), name = std::move(name), purpose](void* p) {
            heap->release(static_cast<std::byte const*>(p), name, purpose);
          }};
}

void SharedHeap::release(std::byte const* data, std::string const& name,
                         memory::Purpose purpose) noexcept {
  SharedAllocation freed;
  {
    std::lock_guard lock(mutex_);
    auto const found = by_address_.find(data);
    freed = std::move(found->second);
    by_number_.erase(freed.number);
    by_address_.erase(found);
  }
  memory::MemoryTracker::of_process().remove(purpose, name, freed.own.bytes());
}

std::optional<SharedHeap::Position> SharedHeap::find(std::byte const* data) const {
  std::lock_guard lock(mutex_);
  auto after = by_address_.upper_bound(data);
  if (after == by_address_.begin()) return std::nullopt;
  auto const& [start, allocation] = *--after;
  auto const offset = static_cast<std::uint64_t>(data - start);
  if (offset >= allocation.own.bytes()) return std::nullopt;
  return Position{allocation.number, offset};
}

std::byte const* SharedHeap::peer_address(int rank, Position position) const {
  std::lock_guard lock(mutex_);
  auto const found = by_number_.find(position.number);
  TESSERA_VALIDATE(found != by_number_.end(), InternalError, "rank ", rank,
                   " uses memory of shared allocation ", position.number,
                   ", which this rank has freed; the owners that allocate() returns must live "
                   "equally long on every "
                   "rank");
  auto const& allocation = by_address_.at(found->second);
  auto const& peer = allocation.peers[static_cast<std::size_t>(rank)];
  return (peer.data() ? peer.data() : allocation.own.data()) + position.offset_bytes;
}

}  // namespace tessera::comm::detail
