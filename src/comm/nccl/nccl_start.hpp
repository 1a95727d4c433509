#pragma once
/// NCCL version, unique id and launch order, agreed on by all ranks before NCCL starts.

#ifdef TESSERA_HAVE_CUDA
#include <nccl.h>

#include <string>

#include "tessera/comm/base/collectives.hpp"
#include "tessera/comm/nccl/nccl_use.hpp"

namespace tessera::comm::detail {

/// "2.28.9"
std::string nccl_version_text(int version);
/// The version of the NCCL library. @throws ConfigError when ranks have different versions
int common_nccl_version(Collectives& host);
/// ncclGetUniqueId of rank 0. @throws ConfigError on every rank when it fails
ncclUniqueId common_nccl_id(Collectives& host);
/// True when operations of two communicators may be in flight at the same time. Sets
/// NCCL_LAUNCH_ORDER_IMPLICIT where it is not set. Collective.
bool nccl_keeps_launch_order(Collectives& host, int version);
/// True when memory shall be registered as symmetric windows: every rank's library has them, and
/// NCCL_WIN_ENABLE is 0 on none. Collective.
bool wants_windows(Collectives& host, int version);
/// Warns where policy zero has no effect between nodes. Collective.
/// @throws ConfigError on all ranks when the library or this build does not have @p policy, or the
/// environment contradicts it
void expect_cta_policy(Collectives& host, int version, NcclCtaPolicy policy);

}  // namespace tessera::comm::detail
#endif
