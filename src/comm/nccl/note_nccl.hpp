#pragma once
/// Notes what comm::nccl_use() reports.

#include "tessera/comm/nccl/nccl_use.hpp"

namespace tessera::comm::detail {

/// NCCL has started; earlier notes are dropped.
void note_nccl(NcclUse const& use);
void note_nccl_buffer(NcclMemoryKind kind);

}  // namespace tessera::comm::detail
