#pragma once
/// Collectives on device memory; operands in host memory are accepted too.

#include <memory>

#include "tessera/comm/base/collectives.hpp"
#include "tessera/comm/nccl/nccl_use.hpp"

namespace tessera::comm {

/// nccl: one device per rank. Reductions and operations that move data run on two streams where
/// NCCL allows it; sums are formed by NCCL in the dtype on the wire. Either every rank passes
/// operands of allocate() to a call, or none does. staged: for ranks that share a device. Operands
/// are copied through pinned host memory, and the host's collectives move them; sums are equal to
/// the host's bit for bit. single_rank: for one rank; copies on the device, without NCCL.
/// automatic: single_rank for one rank, staged when two ranks have the same device, else nccl.
enum class DeviceTransport { automatic, nccl, staged, single_rank };

/// Collectives on the device of this process (memory::Runtime::device()). Operands in host memory
/// are passed on to @p host. allocate() returns device memory. Collective.
/// @throws ConfigError when this build has no NCCL, or NCCL cannot do what @p options ask for;
/// PeerLostError when the ranks do not all call it within the deadline
/// @param options of NCCL; a warning says where a CTA policy has no effect
std::unique_ptr<Collectives> make_device(std::unique_ptr<Collectives> host, Deadline deadline,
                                         DeviceTransport transport = DeviceTransport::automatic,
                                         NcclOptions const& options = {});

}  // namespace tessera::comm
