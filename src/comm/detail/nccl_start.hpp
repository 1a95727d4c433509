#pragma once
/// What ranks agree on before NCCL starts.

#ifdef TESSERA_HAVE_CUDA
#include <nccl.h>

#include <string>

#include "tessera/comm/collectives.hpp"

namespace tessera::comm::detail {

/// "2.28.9"
std::string nccl_version_text(int version);
/// The NCCL that runs, the same on every rank. @throws ConfigError naming the versions
int common_nccl_version(Collectives& host);
/// @throws ConfigError on every rank when rank 0 gets none
ncclUniqueId common_nccl_id(Collectives& host);
/// Whether operations of two communicators may be under way at once. Sets
/// NCCL_LAUNCH_ORDER_IMPLICIT where it is not set. Collective.
bool nccl_keeps_launch_order(Collectives& host, int version);

}  // namespace tessera::comm::detail
#endif
