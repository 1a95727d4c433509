// Sections are those of the "NVIDIA Collective
// Communication Library" user guide.
#include "detail/nccl_start.hpp"

#ifdef TESSERA_HAVE_CUDA
#include <cstdlib>
#include <cstring>
#include <string_view>

#include "tessera/core/error.hpp"
#include "tessera/core/host.hpp"

namespace tessera::comm::detail {

std::string nccl_version_text(int version) {
  return concat(version / 10000, ".", version / 100 % 100, ".", version % 100);
}

/// NCCL's own error names no versions.
int common_nccl_version(Collectives& host) {
  int mine = 0;
  ncclGetVersion(&mine);
  auto const lowest = all_reduce_value(host, std::int64_t{mine}, ReduceOp::min),
             highest = all_reduce_value(host, std::int64_t{mine}, ReduceOp::max);
  auto const text = [](std::int64_t v) { return nccl_version_text(static_cast<int>(v)); };
  TESSERA_VALIDATE(lowest == highest, ConfigError, "NCCL is ", text(lowest), " on some ranks and ",
                   text(highest), " on others, this one (rank ", host.rank(), " on ", host_name(),
                   ") has ", text(mine),
                   "; load the same module on all nodes, or check LD_LIBRARY_PATH there");
  return mine;
}

/// "Creating a Communicator": rank 0 makes the id and broadcasts it.
ncclUniqueId common_nccl_id(Collectives& host) {
  ncclUniqueId id{};
  std::string bytes, failure;
  if (host.rank() == 0) {
    auto const status = ncclGetUniqueId(&id);
    if (status == ncclSuccess)
      bytes.assign(id.internal, sizeof id.internal);
    else
      failure = concat("NCCL cannot be started on rank 0 (", host_name(),
                       "): ncclGetUniqueId: ", ncclGetErrorString(status), ": ",
                       ncclGetLastError(nullptr),
                       "; NCCL_SOCKET_IFNAME may name an interface that does not exist");
  }
  bytes = broadcast_bytes(host, bytes, 0);
  TESSERA_VALIDATE(failure.empty(), ConfigError, failure);
  TESSERA_VALIDATE(bytes.size() == sizeof id.internal, ConfigError,
                   "NCCL cannot be started on rank 0; see the log of that rank");
  std::memcpy(id.internal, bytes.data(), sizeof id.internal);
  return id;
}

/// "Using multiple NCCL communicators concurrently", "Environment Variables": with this
/// variable NCCL 2.26 or later starts the kernels of all communicators in the order of the host's
/// calls; without it two communicators could deadlock. A value that the user has set is not
/// changed.
bool nccl_keeps_launch_order(Collectives& host, int version) {
  char const* const set = std::getenv("NCCL_LAUNCH_ORDER_IMPLICIT");
  bool const known = version >= NCCL_VERSION(2, 26, 0);
  if (known && !set) setenv("NCCL_LAUNCH_ORDER_IMPLICIT", "1", 0);
  return agree(host, known && (!set || std::string_view(set) != "0"));
}

}  // namespace tessera::comm::detail
#endif
