#pragma once
/// Collectives by MPI calls over all ranks, for groups that span nodes.

#include <memory>
#include <vector>

#include "host/process_transport.hpp"

namespace tessera::comm::detail {

/// Uses nonblocking MPI calls only and polls them with a deadline, so that a dead peer becomes an
/// error. For reductions MPI moves the operands, and this rank adds them in fp32, in the order of
/// sums.hpp: results do not depend on the algorithm that MPI chooses.
class MpiTransport final : public ProcessTransport {
 public:
  using ProcessTransport::ProcessTransport;
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
  void all_to_all(Operation const& operation, std::byte const* in, std::byte* out) override;
  using ProcessTransport::all_to_all;
  void barrier(Operation const& operation) override;

 private:
  void run(Operation const& operation, char const* call,
           std::function<int(MPI_Request*)> const& start);
  /// The sum of all ranks' operands, first within each node (sums.hpp).
  void sum(Operation const& operation, std::vector<std::byte const*> const& sources,
           std::int64_t numel, Target const& target) const;
  /// Elements per rank and message, so that the elements of all ranks are at most @p limit_bytes.
  std::int64_t chunk_numel(Operation const& operation, std::size_t limit_bytes) const;
  std::byte* staging(std::size_t bytes);
  void gather_and_reduce(Operation const& operation, std::byte* data);

  std::unique_ptr<memory::Buffer> staging_;
};

}  // namespace tessera::comm::detail
