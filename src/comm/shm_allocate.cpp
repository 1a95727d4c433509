/// Setting up shared memory: the control segment by MPI, once; allocations through the control
/// segment.
#include <algorithm>
#include <utility>

#include "detail/shm_transport.hpp"
#include "tessera/core/error.hpp"
#include "tessera/core/log.hpp"
#include "tessera/memory/limits.hpp"

namespace tessera::comm::detail {

std::unique_ptr<ShmTransport> ShmTransport::try_make(topology::MpiSession const& session,
                                                     Deadline deadline) {
  auto const& info = session.info();
  if (info.local_size != info.world_size) return nullptr;
  MpiComm const comm(session.world());
  PeerWatch peers = watch_peers(comm, session);

  std::size_t const bytes = NodeControl::file_bytes(comm.size());
  SharedFile file = comm.rank() == 0 ? SharedFile::create(bytes) : SharedFile();
  SharedFileAddress address = file.address();
  std::unique_lock lock(mpi_mutex());
  MPI_Bcast(&address, sizeof address, MPI_BYTE, 0, comm.get());
  if (comm.rank() != 0) file = SharedFile::open(address);
  Mapping mapping = file.is_open() ? Mapping(file, bytes, Access::read_write) : Mapping();
  int ok = mapping.data() != nullptr ? 1 : 0, all_ok = 0;
  MPI_Allreduce(&ok, &all_ok, 1, MPI_INT, MPI_MIN, comm.get());
  lock.unlock();
  if (!all_ok) {
    log::warning(
        "the ranks of this node cannot map each other's memory (separate process namespaces, or "
        "memfd_create is not "
        "allowed); they communicate through MPI, which is slower");
    return nullptr;
  }
  return std::unique_ptr<ShmTransport>(
      new ShmTransport(std::move(peers), std::move(mapping), comm.rank(), comm.size(), deadline));
}

/// Worst outcome of all ranks, and the lowest rank that had it; afterwards the announced files can
/// be read.
ShmTransport::Outcome ShmTransport::agree_on(Operation const& o, Outcome own,
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

ShmTransport::Outcome ShmTransport::map_peers(Operation const& o, SharedAllocation& allocation) {
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
std::shared_ptr<void> ShmTransport::allocate(Operation const& o, std::string const& name,
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
