#pragma once
/// Device memory registered with NCCL, which NCCL sends and receives without an internal copy: as
/// symmetric windows where the library has them, else by ncclCommRegister.

#ifdef TESSERA_HAVE_CUDA
#include <map>
#include <memory>
#include <string>
#include <vector>

#include "nccl/nccl_comm.hpp"
#include "tessera/comm/nccl/nccl_use.hpp"

namespace tessera::comm::detail {

/// Time for streams to leave the kernels of aborted communicators, before buffers are freed.
inline constexpr Deadline abort_grace = std::chrono::seconds(5);

/// Whether allocations become symmetric windows. The same on all ranks.
struct NcclWindows {
  bool possible = false;
  bool required = false;  ///< without them an allocation is a ConfigError
};

/// An allocation lives as long as its owner, even after the communicators are destroyed. Its
/// registrations end with the owner or with close(), whichever is first. The owner's end waits
/// until no stream uses the memory, but not for a peer that is lost: memory that is still in use is
/// then freed by close().
class NcclMemory {
 public:
  /// @p comms must live until close().
  NcclMemory(Collectives& host, std::vector<NcclComm*> comms, NcclWindows windows,
             Deadline deadline);
  ~NcclMemory() { close(); }

  /// Zeroed, counted by the memory tracker of the device. Either all ranks get memory of
  /// ncclMemAlloc, registered in the same way with every communicator, or all get ordinary device
  /// memory. Collective.
  /// @throws OutOfMemoryError on all ranks; ConfigError when windows are required and there are
  /// none, or when NCCL fails to make one, which ends the communicators; then other ranks get
  /// PeerLostError after the deadline
  std::shared_ptr<void> allocate(std::string const& name, memory::Purpose purpose,
                                 std::size_t bytes);
  /// Deregisters all memory when no operation uses it any more, before the communicators are
  /// destroyed.
  void close() noexcept;
  /// What the next allocation tries.
  NcclWindows windows() const { return windows_; }

 private:
  class Allocation;
  struct Registrations;
  NcclMemoryKind enter(std::string const& name, void* data, std::size_t bytes);
  void log_once(std::string const& text);
  Collectives& host_;
  NcclWindows windows_;
  std::shared_ptr<Registrations> registrations_;
  bool logged_ = false;
};

}  // namespace tessera::comm::detail
#endif
