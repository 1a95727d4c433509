// Sections are those of the "NVIDIA Collective
// Communication Library" user guide.
#include "nccl/nccl_start.hpp"

#ifdef TESSERA_HAVE_CUDA
#include <cstdlib>
#include <cstring>
#include <string_view>

#include "nccl/nccl_windows.hpp"
#include "tessera/core/error.hpp"
#include "tessera/core/log.hpp"
#include "tessera/core/process.hpp"

namespace tessera::comm::detail {
namespace {

/// The value of an environment variable; empty where it is not set.
std::string_view environment(char const* name) {
  char const* const value = std::getenv(name);
  return value ? value : "";
}

/// NCCL_CTA_POLICY replaces what a program asks for.
bool environment_has(NcclCtaPolicy policy) {
  auto const set = environment("NCCL_CTA_POLICY");
  if (set.empty()) return true;
  if (policy == NcclCtaPolicy::zero) return set == "2" || set == "ZERO";
  return set == "1" || set == "EFFICIENCY";
}

/// Whether every rank is on one node.
bool on_one_node(Collectives& host) {
  return agree(host, broadcast_bytes(host, boot_id(), 0) == boot_id());
}

}  // namespace

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

bool wants_windows(Collectives& host, int version) {
  return agree(host, nccl_has_windows(version) && environment("NCCL_WIN_ENABLE") != "0");
}

/// "NCCL Communicator CTA Policy Flags", "Zero-CTA Optimization".
void expect_cta_policy(Collectives& host, int version, NcclCtaPolicy policy) {
  if (policy == NcclCtaPolicy::library_default) return;
  bool const zero = policy == NcclCtaPolicy::zero;
  int const needed = zero ? NCCL_VERSION(2, 28, 0) : NCCL_VERSION(2, 27, 0);
  std::string const option = concat("--nccl_cta_policy ", name_of(policy));
  run_on_ranks(host, [&] {
    TESSERA_VALIDATE(version >= needed, ConfigError, option, " needs NCCL ",
                     nccl_version_text(needed), " or newer, and this one is ",
                     nccl_version_text(version), "; load a newer one or leave the option out");
    TESSERA_VALIDATE(NCCL_VERSION_CODE >= needed, ConfigError, option,
                     ": this program was built with NCCL ", nccl_version_text(NCCL_VERSION_CODE),
                     ", which does not have it; build with ", nccl_version_text(needed),
                     " or newer, or leave the option out");
    TESSERA_VALIDATE(environment_has(policy), ConfigError, option,
                     ", and NCCL_CTA_POLICY=", environment("NCCL_CTA_POLICY"), " on rank ",
                     host.rank(), " (", host_name(), ") would replace it; unset one of the two");
    TESSERA_VALIDATE(!zero || environment("NCCL_WIN_ENABLE") != "0", ConfigError, option,
                     " needs symmetric windows, which NCCL_WIN_ENABLE=0 turns off on rank ",
                     host.rank(), " (", host_name(), "); unset it or leave the option out");
  });
  if (zero && version < NCCL_VERSION(2, 30, 6) && !on_one_node(host) && host.rank() == 0)
    log::warning(concat(option, ": NCCL ", nccl_version_text(version),
                        " uses copy engines within one node (NVLink domain) only, and this run "
                        "has several; between nodes it needs NCCL 2.30.6"));
}

}  // namespace tessera::comm::detail
#endif
