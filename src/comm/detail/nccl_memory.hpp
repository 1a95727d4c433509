#pragma once
/// Device memory registered with NCCL, which NCCL sends and receives without an internal copy.

#ifdef TESSERA_HAVE_CUDA
#include <map>
#include <memory>
#include <string>
#include <vector>

#include "detail/nccl_comm.hpp"

namespace tessera::comm::detail {

/// An allocation lives as long as its owner, even after the communicators are destroyed. Its
/// registrations end with the owner or with close(), whichever is first.
class NcclMemory {
 public:
  /// @p comms must live until close().
  NcclMemory(Collectives& host, std::vector<NcclComm*> comms);
  ~NcclMemory() { close(); }

  /// Zeroed, counted by the memory tracker of the device. Either all ranks get memory of
  /// ncclMemAlloc, registered with every communicator, or all get ordinary device memory.
  /// Collective.
  /// @throws OutOfMemoryError on all ranks
  std::shared_ptr<void> allocate(std::string const& name, memory::Purpose purpose,
                                 std::size_t bytes);
  /// Deregisters all memory, before the communicators are destroyed.
  void close() noexcept;

 private:
  class Allocation;
  struct Registrations;
  Collectives& host_;
  std::shared_ptr<Registrations> registrations_;
  bool logged_ = false;
};

}  // namespace tessera::comm::detail
#endif
