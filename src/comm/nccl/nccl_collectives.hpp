#pragma once
/// Collectives by NCCL calls, for ranks with a device each, and notes of what comm::nccl_use()
/// reports.

#include <memory>

#include "tessera/comm/base/collectives.hpp"
#include "tessera/comm/nccl/nccl_use.hpp"

namespace tessera::comm::detail {

/// @throws ConfigError when this build has no NCCL; PeerLostError when ranks do not meet within the
/// deadline
std::unique_ptr<Collectives> make_nccl(std::unique_ptr<Collectives> host, Deadline deadline,
                                       NcclOptions const& options);

/// NCCL has started; earlier notes are dropped.
void note_nccl(NcclUse const& use);
void note_nccl_buffer(NcclMemoryKind kind);

}  // namespace tessera::comm::detail
