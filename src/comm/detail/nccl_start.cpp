// What ranks agree on before NCCL starts. Sections are those of the "NVIDIA Collective
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

/// Ranks with different versions would end in an error that names none.
int common_nccl_version(Collectives& host) {
  int mine = 0;
  ncclGetVersion(&mine);
  auto const lowest = all_reduce_value(host, std::int64_t{mine}, ReduceOp::min),
             highest = all_reduce_value(host, std::int64_t{mine}, ReduceOp::max);
  auto const text = [](std::int64_t v) { return nccl_version_text(static_cast<int>(v)); };
  TESSERA_VALIDATE(lowest == highest, ConfigError, "NCCL is ", text(lowest), " on some ranks and ",
                   text(highest), " on others, this one (rank ", host.rank(), " on ", host_name(),
                   ") has ", text(mine),
                   "; load the same module on all nodes, or look at LD_LIBRARY_PATH there");
  return mine;
}

/// "Creating a Communicator": rank 0 makes the id, every rank is told.
ncclUniqueId common_nccl_id(Collectives& host) {
  ncclUniqueId id{};
  std::string bytes, refusal;
  if (host.rank() == 0) {
    auto const status = ncclGetUniqueId(&id);
    if (status == ncclSuccess)
      bytes.assign(id.internal, sizeof id.internal);
    else
      refusal = concat("NCCL cannot be started on rank 0 (", host_name(),
                       "): ncclGetUniqueId: ", ncclGetErrorString(status), ": ",
                       ncclGetLastError(nullptr),
                       "; NCCL_SOCKET_IFNAME may name an interface that is not there");
  }
  bytes = broadcast_bytes(host, bytes, 0);
  TESSERA_VALIDATE(refusal.empty(), ConfigError, refusal);
  TESSERA_VALIDATE(bytes.size() == sizeof id.internal, ConfigError,
                   "NCCL cannot be started on rank 0; its own message says why");
  std::memcpy(id.internal, bytes.data(), sizeof id.internal);
  return id;
}

/// "Using multiple NCCL communicators concurrently", "Environment Variables": from 2.26 on NCCL
/// starts the kernels of all communicators in the order of the host's calls when this variable is
/// set; without it two of them could wait for each other. What the user has set stays.
bool nccl_keeps_launch_order(Collectives& host, int version) {
  char const* const set = std::getenv("NCCL_LAUNCH_ORDER_IMPLICIT");
  bool const known = version >= NCCL_VERSION(2, 26, 0);
  if (known && !set) setenv("NCCL_LAUNCH_ORDER_IMPLICIT", "1", 0);
  return agree(host, known && (!set || std::string_view(set) != "0"));
}

}  // namespace tessera::comm::detail
#endif
