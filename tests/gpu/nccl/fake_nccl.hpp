#pragma once
/// An NCCL on host memory: the functions that Tessera calls, between processes of one machine, on
/// the streams of a FakeDevice. It keeps to the contract of the user guide, takes its time as a
/// non-blocking NCCL may, notes every breach of that contract by its caller, and fails where it is
/// told to. Sums are formed as a binary tree over the ranks, in the type on the wire.

#include <string>
#include <vector>

namespace tessera::test {

struct NcclFaults {
  int version = 22809;
  bool no_unique_id = false;   ///< ncclGetUniqueId fails
  bool start_refused = false;  ///< ncclCommInitRankConfig fails on this rank
  bool start_hangs = false;    ///< this rank never meets the others
  bool split_hangs = false;
  bool split_fails = false;  ///< a communicator split off reports an error on this rank
  int hang_at =
      0;  ///< from this launch on (1: the first) nothing that this rank starts is ever carried out
  int blocks_at = 0;        ///< the call of this launch never returns, and holds the library's lock
  int remote_error_at = 0;  ///< this launch ends in ncclRemoteError on this rank
  bool memory_refused = false;    ///< ncclMemAlloc fails
  bool register_refused = false;  ///< ncclCommRegister fails
  bool window_refused = false;    ///< ncclCommWindowRegister fails on this rank
  bool no_windows = false;  ///< ncclCommWindowRegister makes none on this rank, without an error
};
/// Returns the faults of this process; each call reads them.
NcclFaults& nccl_faults();

struct NcclInUse {
  int communicators = 0, registrations = 0, blocks = 0, windows = 0;
  bool operator==(NcclInUse const&) const = default;
};
NcclInUse nccl_in_use();

/// What the caller did against the contract since the last call.
std::vector<std::string> take_nccl_breaches();

/// Launches since the process began by communicator, in the order of the streams: "0
/// ReduceScatter", "1 AllGather", ... Number 0 is a communicator of an id, 1 the first split from
/// it.
std::vector<std::string> take_nccl_launches();
/// The communicators of each group of ncclCommAbort since the last call; 1: without a group.
std::vector<int> take_nccl_aborts();
/// ncclConfig_t::maxCTAs and CTAPolicy of a communicator; NCCL_CONFIG_UNDEF_INT: NCCL's choice.
struct NcclCtas {
  int most, policy;
  bool operator==(NcclCtas const&) const = default;
};
/// Returns the CTAs of each communicator that has been made or split off since the last call.
std::vector<NcclCtas> take_nccl_ctas();

}  // namespace tessera::test
