#pragma once
/// An NCCL communicator. No call blocks longer than the deadline, and any thread may abort it.

#ifdef TESSERA_HAVE_CUDA
#include <nccl.h>

#include <functional>
#include <mutex>
#include <string>
#include <utility>
#include <vector>

#include "tessera/comm/base/collectives.hpp"
#include "tessera/comm/nccl/nccl_use.hpp"

namespace tessera::comm::detail {

/// What NCCL's kernels take of a device.
struct NcclLimits {
  int max_ctas = 0;  ///< ncclConfig_t::maxCTAs, thread blocks of an operation; 0: NCCL's choice
  NcclCtaPolicy cta_policy = NcclCtaPolicy::library_default;
};

class NcclComm {
 public:
  /// @param name ncclConfig_t::commName, printed by NCCL_DEBUG
  NcclComm(std::string name, int rank, Deadline deadline, NcclLimits limits = {})
      : name_(std::move(name)), rank_(rank), deadline_(deadline), limits_(limits) {}
  /// Aborts operations in flight.
  ~NcclComm() { abort(); }
  NcclComm(NcclComm const&) = delete;
  NcclComm& operator=(NcclComm const&) = delete;

  /// @throws PeerLostError when not all ranks call it within the deadline
  void start(int ranks, ncclUniqueId const& id);
  NcclLimits limits() const { return limits_; }
  /// ncclCommSplit: a communicator of the ranks of equal @p color, in the order of their keys, that
  /// shares no resources with @p parent. With a negative color this one stays closed. Every rank of
  /// @p parent calls it.
  void split_from(NcclComm& parent, int color, int key);

  /// Calls @p body and waits until NCCL has enqueued its operations, so that the stream may be used
  /// again.
  /// @throws PeerLostError naming @p what after the deadline, or when a peer or the network has
  /// failed; InternalError otherwise
  void call(std::string const& what, std::function<ncclResult_t(ncclComm_t)> const& body);
  /// Calls @p body between ncclGroupStart and ncclGroupEnd, with the errors of call(); @p body
  /// returns at the first error.
  void group(std::string const& what, std::function<ncclResult_t(ncclComm_t)> const& body);
  /// Checks for an error that a peer or the network has caused. @throws PeerLostError naming @p
  /// what
  void check_async_error(std::string const& what);

  /// ncclCommFinalize, at most for the deadline, and ncclCommDestroy.
  void finish() noexcept;
  /// ncclCommAbort: ends the operations in flight on this rank. From any thread.
  void abort() noexcept;
  /// abort() of communicators whose operations may wait for each other: all are told to end before
  /// any is waited for.
  static void abort_all(std::vector<NcclComm*> const& comms) noexcept;
  /// Whether it was neither destroyed nor aborted.
  bool is_open() noexcept;
  /// Calls @p body unless the communicator was destroyed or aborted.
  void if_open(std::function<void(ncclComm_t)> const& body);

 private:
  ncclResult_t async_error(std::string const& what);
  void wait_until_done(ncclResult_t status, std::string const& what);
  [[noreturn]] void throw_error(ncclResult_t status, std::string const& what);
  void expect_open(std::string const& what) const;
  std::string with_rank(std::string const& what) const;

  std::mutex mutex_;  ///< around each call, never while waiting
  ncclComm_t comm_ = nullptr;
  std::string name_;  ///< NCCL keeps its address
  int rank_;
  Deadline deadline_;
  NcclLimits limits_;
};

/// @throws InternalError for a dtype NCCL does not have
ncclDataType_t nccl_type(Dtype dtype);
ncclRedOp_t nccl_op(ReduceOp op);

}  // namespace tessera::comm::detail
#endif
