#pragma once
/// NCCL's communicators, each with the stream of its operations.

#ifdef TESSERA_HAVE_CUDA
#include <array>
#include <memory>
#include <string>
#include <vector>

#include "nccl/nccl_comm.hpp"
#include "nccl/nccl_memory.hpp"
#include "tessera/comm/base/collectives.hpp"
#include "tessera/comm/nccl/nccl_use.hpp"
#include "tessera/memory/queue.hpp"

namespace tessera::comm::detail {

/// A communicator and the stream of its operations.
struct CommStream {
  struct Memory {
    std::shared_ptr<void> data;
    std::size_t bytes = 0;
  };
  std::unique_ptr<memory::Queue> queue;
  std::unique_ptr<NcclComm> comm;
  memory::Event last;
  std::array<Memory, 2> scratch;
};

struct NcclStart {
  std::vector<CommStream> streams;
  NcclWindows windows;
};

/// One communicator for operations that move data and one for reductions, or one for both where
/// NCCL does not start the kernels of two communicators in the order of the calls. Two share the
/// multiprocessors of @p options, because an operation of each may be in flight. Collective.
/// @throws ConfigError on all ranks when NCCL cannot do what @p options ask for
NcclStart start_streams(Collectives& host, Deadline deadline, NcclOptions const& options);
/// The communicators of a group, each split from that of @p parents. Every rank of @p host calls
/// it.
/// @param rank in the group
std::vector<CommStream> split_streams(Collectives& host, std::vector<CommStream> const& parents,
                                      topology::RankGroup const& group, int rank,
                                      Deadline deadline);
std::vector<NcclComm*> comms_of(std::vector<CommStream> const& streams);

}  // namespace tessera::comm::detail
#endif
