#include "host/shared_heap.hpp"

#include <utility>

#include "base/transport.hpp"
#include "tessera/core/error.hpp"
#include "tessera/core/log.hpp"
#include "tessera/core/text.hpp"
#include "tessera/memory/limits.hpp"

namespace tessera::comm::detail {

std::shared_ptr<void> SharedHeap::add(SharedAllocation allocation, std::string name,
                                      memory::Purpose purpose) {
  std::byte* const data = allocation.own_mapping.data();
  memory::MemoryTracker::of_process().add(purpose, name, allocation.own_mapping.bytes());
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
  memory::MemoryTracker::of_process().remove(purpose, name, freed.own_mapping.bytes());
}

std::optional<SharedHeap::Position> SharedHeap::find(std::byte const* data) const {
  std::lock_guard lock(mutex_);
  auto after = by_address_.upper_bound(data);
  if (after == by_address_.begin()) return std::nullopt;
  auto const& [start, allocation] = *--after;
  auto const offset = static_cast<std::uint64_t>(data - start);
  if (offset >= allocation.own_mapping.bytes()) return std::nullopt;
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
  return (peer.data() ? peer.data() : allocation.own_mapping.data()) + position.offset_bytes;
}

SharedAllocator::Outcome SharedAllocator::worst_outcome(Operation const& o, Outcome own,
                                                        SharedFile const* file, int& worst_rank) {
  PostedOperation own_post;
  own_post.operation = o;
  own_post.status = static_cast<std::int32_t>(own);
  if (file) own_post.file = file->address();
  control_.post(own_post);
  auto worst = Outcome::done;
  for (int q = group_.size - 1; q >= 0; --q) {
    auto const status = static_cast<Outcome>(control_.posted(q).status);
    if (status >= worst) worst = status, worst_rank = q;
  }
  return worst;
}

SharedAllocator::Outcome SharedAllocator::map_peers(Operation const& o,
                                                    SharedAllocation& allocation) {
  for (int q = 0; q < group_.size; ++q) {
    allocation.peers.emplace_back();
    if (q == group_.rank) continue;
    auto const file = SharedFile::open(control_.posted(q).file);
    if (file.is_open()) allocation.peers.back() = Mapping(file, o.bytes(), Access::read);
    if (!allocation.peers.back().data()) return Outcome::not_shareable;
  }
  return Outcome::done;
}

std::shared_ptr<void> SharedAllocator::allocate(Operation const& o, std::string const& name,
                                                memory::Purpose purpose) {
  if (o.bytes() == 0) return allocate_private(name, purpose, 0);
  int worst_rank = 0;
  std::string failure;
  auto const throw_if_out_of_memory = [&](Outcome outcome) {
    if (outcome != Outcome::out_of_memory) return;
    TESSERA_VALIDATE(failure.empty(), OutOfMemoryError, failure);
    throw OutOfMemoryError(concat(peers_.describe(worst_rank), " cannot allocate ",
                                  human_bytes(static_cast<std::int64_t>(o.bytes())), " for ", name,
                                  "; see the log of that rank"));
  };
  auto const attempt = [&](auto&& body) {
    try {
      return body() ? Outcome::done : Outcome::not_shareable;
    } catch (OutOfMemoryError const& error) {
      failure = error.what();
      return Outcome::out_of_memory;
    }
  };

  SharedFile file;
  SharedAllocation allocation;
  Outcome outcome = attempt([&] {
    memory::require_available(name, o.bytes(), static_cast<std::size_t>(group_.size));
    file = SharedFile::create(o.bytes());
    if (file.is_open()) allocation.own_mapping = Mapping(file, o.bytes(), Access::read_write);
    return allocation.own_mapping.data() != nullptr;
  });
  throw_if_out_of_memory(outcome = worst_outcome(o, outcome, &file, worst_rank));
  if (outcome == Outcome::done)
    outcome = worst_outcome(o, map_peers(o, allocation), nullptr, worst_rank);
  if (outcome == Outcome::done) return heap_->add(std::move(allocation), name, purpose);

  allocation = {};  // what is mapped counts against a limit on the address space
  file = {};
  log::warning(concat(name, ": ", human_bytes(static_cast<std::int64_t>(o.bytes())),
                      " could not be mapped by all ranks of this node (",
                      peers_.describe(worst_rank),
                      " failed); they are copied through staging buffers, which is slower"));
  std::shared_ptr<void> memory;
  outcome =
      attempt([&] { return (memory = allocate_private(name, purpose, o.bytes())) != nullptr; });
  throw_if_out_of_memory(worst_outcome(o, outcome, nullptr, worst_rank));
  return memory;
}

}  // namespace tessera::comm::detail
