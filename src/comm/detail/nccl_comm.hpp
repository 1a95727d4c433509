#pragma once
/// An NCCL communicator of a rank: no call on it blocks for longer than a deadline, and it can be
/// ended from another thread at any time.

#ifdef TESSERA_HAVE_CUDA
#include <nccl.h>

#include <functional>
#include <mutex>
#include <string>

#include "tessera/comm/collectives.hpp"

namespace tessera::comm::detail {

class NcclComm {
 public:
  /// @param name in what NCCL_DEBUG prints; a literal
  NcclComm(char const* name, int rank, Deadline deadline)
      : name_(name), rank_(rank), deadline_(deadline) {}
  /// Ends what is under way.
  ~NcclComm() { abort(); }
  NcclComm(NcclComm const&) = delete;
  NcclComm& operator=(NcclComm const&) = delete;

  /// @throws PeerLostError when the ranks do not meet within the deadline
  void start(int ranks, ncclUniqueId const& id);
  /// A communicator of the same ranks with resources of its own.
  void split_from(NcclComm& parent);

  /// Makes the calls of @p body and waits until NCCL has taken them up, so that the stream may be
  /// used again.
  /// @throws PeerLostError naming @p what after the deadline, or when a peer or the network has
  /// failed; InternalError else
  void call(std::string const& what, std::function<ncclResult_t(ncclComm_t)> const& body);
  /// The same for several operations that start together; @p body returns at the first error.
  void group(std::string const& what, std::function<ncclResult_t(ncclComm_t)> const& body);
  /// Looks for an error that a peer or the network has caused. @throws PeerLostError naming @p what
  void look(std::string const& what);

  /// Waits for the peers, at most for the deadline, then lets the communicator go.
  void finish() noexcept;
  /// Ends what is under way on this rank, so that its stream comes to rest. From any thread.
  void abort() noexcept;
  /// Calls @p body unless the communicator has ended.
  void while_there(std::function<void(ncclComm_t)> const& body);

 private:
  ncclResult_t state(std::string const& what);
  void settle(ncclResult_t status, std::string const& what);
  [[noreturn]] void failed(ncclResult_t status, std::string const& what);
  void expect_there(std::string const& what) const;
  std::string at(std::string const& what) const;

  std::mutex mutex_;  ///< around each call, never while waiting
  ncclComm_t comm_ = nullptr;
  char const* name_;
  int rank_;
  Deadline deadline_;
};

/// @throws InternalError for a dtype NCCL does not have
ncclDataType_t nccl_type(Dtype dtype);
ncclRedOp_t nccl_op(ReduceOp op);

}  // namespace tessera::comm::detail
#endif
