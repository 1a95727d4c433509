#pragma once
/// The NCCL communicator of a rank: started, watched and ended without ever blocking for longer than a deadline.

#ifdef TESSERA_HAVE_CUDA
#include <nccl.h>

#include <string>

#include "tessera/comm/collectives.hpp"

namespace tessera::comm::detail {

class NcclComm {
 public:
  /// Collective over @p host, which carries NCCL's unique id.
  /// @throws PeerLostError when the ranks do not meet within the deadline
  NcclComm(Collectives& host, Deadline deadline);
  ~NcclComm();
  NcclComm(NcclComm const&) = delete;
  NcclComm& operator=(NcclComm const&) = delete;

  ncclComm_t get() const { return comm_; }
  /// A call has returned @p status: waits while it is in progress. @throws PeerLostError naming @p what
  void check(ncclResult_t status, std::string const& what);
  /// Looks for an error that a peer or the network has caused meanwhile. @throws PeerLostError naming @p what
  void look(std::string const& what);
  /// Ends what is under way on this rank, so that its stream comes to rest.
  void abort() noexcept;

 private:
  [[noreturn]] void failed(ncclResult_t status, std::string const& what);

  ncclComm_t comm_ = nullptr;
  Deadline deadline_;
  int rank_;
};

/// @throws InternalError for a dtype NCCL does not have
ncclDataType_t nccl_type(Dtype dtype);
ncclRedOp_t nccl_op(ReduceOp op);

}  // namespace tessera::comm::detail
#endif
