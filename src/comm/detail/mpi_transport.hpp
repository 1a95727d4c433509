#pragma once
/// Collectives by MPI calls over all ranks, for groups that span nodes.

#include <memory>
#include <vector>

#include "detail/mpi_comm.hpp"
#include "detail/transport.hpp"

namespace tessera::comm::detail {

/// Uses nonblocking MPI calls only and polls them with a deadline, so that a dead peer becomes an
/// error. For reductions MPI moves the operands, and this rank adds them in rank order in fp32:
/// results do not depend on the algorithm that MPI chooses.
class MpiTransport final : public Transport {
 public:
  MpiTransport(topology::MpiSession const& session, Deadline deadline);
  int rank() const override { return comm_.rank(); }
  int size() const override { return comm_.size(); }
  char const* name() const override { return "mpi"; }

  std::shared_ptr<void> allocate(Operation const& operation, std::string const& name,
                                 memory::Purpose purpose) override;
  void broadcast(Operation const& operation, std::byte* data) override;
  void all_reduce(Operation const& operation, std::byte* data) override;
  void reduce(Operation const& operation, std::byte* data) override;
  void reduce_scatter(Operation const& operation, std::byte const* in, Target const& out) override;
  void all_gather(Operation const& operation, std::byte const* in, std::byte* out) override;
  void scatter(Operation const& operation, std::byte const* in, std::byte* out) override;
  void gather(Operation const& operation, std::byte const* in, std::byte* out) override;
  void barrier(Operation const& operation) override;

 private:
  /// Starts a nonblocking call under the lock and waits for it.
  template <class Start>
  void run(Operation const& operation, char const* call, Start&& start);
  void finish(Operation const& operation, MPI_Request request);
  /// Elements per rank and message, so that the elements of all ranks are at most @p limit_bytes.
  std::int64_t chunk_numel(Operation const& operation, std::size_t limit_bytes) const;
  std::byte* staging(std::size_t bytes);
  void gather_and_reduce(Operation const& operation, std::byte* data);

  MpiComm comm_;
  PeerLiveness peers_;
  Deadline deadline_;
  std::unique_ptr<memory::Buffer> staging_;
  bool broken_ = false;
};

}  // namespace tessera::comm::detail
