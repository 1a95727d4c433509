#pragma once
/// Collectives whose buffers lie on a device, beside those of host memory.

#include <memory>

#include "tessera/comm/collectives.hpp"

namespace tessera::comm {

/// nccl: one device per rank; operations that reduce and operations that move data are on two
/// streams of their own, sums are formed by NCCL in the dtype on the wire. The operands of one call
/// are allocate()'s on every rank, or on none. staged: through host memory and the host's
/// collectives, for ranks that share a device; sums are the host's, bit for bit.
enum class DeviceTransport { automatic, nccl, staged };

/// Takes operands on the device of this process (memory::Runtime::device()) and in host memory; the
/// latter go to @p host. allocate() gives device memory. automatic: staged when two ranks have the
/// same device, else NCCL. Collective.
/// @throws ConfigError when this build has no NCCL; PeerLostError when ranks do not meet within the
/// deadline
std::unique_ptr<Collectives> make_device(std::unique_ptr<Collectives> host, Deadline deadline,
                                         DeviceTransport transport = DeviceTransport::automatic);

}  // namespace tessera::comm
