#include "detail/shared_allocator.hpp"

#include <utility>

#include "detail/transport.hpp"
#include "tessera/core/error.hpp"
#include "tessera/core/log.hpp"
#include "tessera/memory/limits.hpp"

namespace tessera::comm::detail {

/// Worst outcome of all ranks, and the lowest rank that had it; afterwards the announced files can
/// be read.
SharedAllocator::Outcome SharedAllocator::agree_on(Operation const& o, Outcome own,
                                                   SharedFile const* file, int& worst_rank) {
  Announcement announcement;
  announcement.operation = o;
  announcement.status = static_cast<std::int32_t>(own);
  if (file) announcement.file = file->address();
  control_.announce(announcement);
  auto worst = Outcome::done;
  for (int q = size_ - 1; q >= 0; --q) {
    auto const status = static_cast<Outcome>(control_.announced(q).status);
    if (status >= worst) worst = status, worst_rank = q;
  }
  return worst;
}

SharedAllocator::Outcome SharedAllocator::map_peers(Operation const& o,
                                                    SharedAllocation& allocation) {
  for (int q = 0; q < size_; ++q) {
    allocation.peers.emplace_back();
    if (q == rank_) continue;
    auto const file = SharedFile::open(control_.announced(q).file);
    if (file.is_open()) allocation.peers.back() = Mapping(file, o.bytes(), Access::read);
    if (!allocation.peers.back().data()) return Outcome::not_shareable;
  }
  return Outcome::done;
}

/// In shared memory when all ranks can, else in ordinary memory on all, else an error on all.
std::shared_ptr<void> SharedAllocator::allocate(Operation const& o, std::string const& name,
                                                memory::Purpose purpose) {
  if (o.bytes() == 0) return allocate_private(name, purpose, 0);
  int culprit = 0;
  std::string refusal;
  auto const refuse = [&](Outcome outcome) {
    if (outcome != Outcome::out_of_memory) return;
    TESSERA_VALIDATE(refusal.empty(), OutOfMemoryError, refusal);
    throw OutOfMemoryError(
        concat(peers_.describe(culprit), " has no memory for ", name, " (", o.bytes(), " bytes)"));
  };
  auto const attempt = [&](auto&& body) {
    try {
      return body() ? Outcome::done : Outcome::not_shareable;
    } catch (OutOfMemoryError const& error) {
      refusal = error.what();
      return Outcome::out_of_memory;
    }
  };

  SharedFile file;
  SharedAllocation allocation;
  Outcome outcome = attempt([&] {
    memory::require_available(name, o.bytes(), static_cast<std::size_t>(size_));
    file = SharedFile::create(o.bytes());
    if (file.is_open()) allocation.own = Mapping(file, o.bytes(), Access::read_write);
    return allocation.own.data() != nullptr;
  });
  refuse(outcome = agree_on(o, outcome, &file, culprit));
  if (outcome == Outcome::done) outcome = agree_on(o, map_peers(o, allocation), nullptr, culprit);
  if (outcome == Outcome::done) return heap_->keep(std::move(allocation), name, purpose);

  log::warning(concat(
      name, ": ", o.bytes(), " bytes could not be shared by the ranks of this node (",
      peers_.describe(culprit), "); they are copied through staging buffers, which is slower"));
  std::shared_ptr<void> memory;
  outcome =
      attempt([&] { return (memory = allocate_private(name, purpose, o.bytes())) != nullptr; });
  refuse(agree_on(o, outcome, nullptr, culprit));
  return memory;
}

}  // namespace tessera::comm::detail
