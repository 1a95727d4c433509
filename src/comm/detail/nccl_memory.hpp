#pragma once
/// Device memory that NCCL moves without a copy through buffers of its own.

#ifdef TESSERA_HAVE_CUDA
#include <map>
#include <memory>
#include <string>
#include <vector>

#include "detail/nccl_comm.hpp"

namespace tessera::comm::detail {

/// Memory lives as long as its owner, also after the communicators; registrations end with whatever
/// ends first.
class NcclMemory {
 public:
  /// @p comms live until close().
  NcclMemory(Collectives& host, std::vector<NcclComm*> comms);
  ~NcclMemory() { close(); }

  /// Zeroed, counted in the device's memory tracker. Memory of ncclMemAlloc registered on every
  /// communicator, on all ranks, or ordinary device memory on all. Collective over the host's
  /// ranks. @throws OutOfMemoryError on all ranks
  std::shared_ptr<void> allocate(std::string const& name, memory::Purpose purpose,
                                 std::size_t bytes);
  /// Takes back all registrations that are left, before the communicators end.
  void close() noexcept;

 private:
  class Block;
  struct Registrations;
  Collectives& host_;
  std::shared_ptr<Registrations> registrations_;
  bool told_ = false;
};

}  // namespace tessera::comm::detail
#endif
