// NCCL's communicators. Sections are those of the "NVIDIA Collective Communication Library" user guide.
#include "detail/nccl.hpp"

#ifdef TESSERA_HAVE_CUDA

#include <chrono>
#include <cstring>
#include <thread>
#include <utility>

#include "tessera/core/error.hpp"
#include "tessera/core/host.hpp"

namespace tessera::comm::detail {
namespace {

using Clock = std::chrono::steady_clock;

/// Ranks with different versions would end in an error that names none.
void expect_one_version(Collectives& host) {
  int mine = 0;
  ncclGetVersion(&mine);
  auto const lowest = all_reduce_value(host, std::int64_t{mine}, ReduceOp::min), highest = all_reduce_value(host, std::int64_t{mine}, ReduceOp::max);
  auto const text = [](std::int64_t v) { return concat(v / 10000, ".", v / 100 % 100, ".", v % 100); };
  TESSERA_VALIDATE(lowest == highest, ConfigError, "NCCL is ", text(lowest), " on some ranks and ", text(highest), " on others, this one (", host_name(), ") has ",
                   text(mine), "; load the same module on all nodes, or look at LD_LIBRARY_PATH there");
}

/// "Creating a Communicator": rank 0 makes the id, every rank is told.
ncclUniqueId common_id(Collectives& host) {
  ncclUniqueId id{};
  std::string bytes;
  std::string refusal;
  if (host.rank() == 0) {
    auto const status = ncclGetUniqueId(&id);
    if (status == ncclSuccess) bytes.assign(id.internal, sizeof id.internal);
    else refusal = concat("NCCL: ncclGetUniqueId: ", ncclGetErrorString(status), ": ", ncclGetLastError(nullptr));
  }
  bytes = broadcast_bytes(host, bytes, 0);
  TESSERA_VALIDATE(refusal.empty(), ConfigError, refusal);
  TESSERA_VALIDATE(bytes.size() == sizeof id.internal, ConfigError, "NCCL could not be started on rank 0; its own message says why");
  std::memcpy(id.internal, bytes.data(), sizeof id.internal);
  return id;
}

}  // namespace

/// "Creating a communicator with options": with blocking = 0 no call blocks; its end is learnt from ncclCommGetAsyncError.
NcclComm::NcclComm(Collectives& host, Deadline deadline) : deadline_(deadline), rank_(host.rank()) {
  ncclConfig_t config = NCCL_CONFIG_INITIALIZER;
  config.blocking = 0;
  expect_one_version(host);
  auto const id = common_id(host);
  try {
    check(ncclCommInitRankConfig(&comm_, host.size(), id, host.rank(), &config), concat("start of the communicator of ", host.size(), " ranks"));
  } catch (...) {
    abort();
    throw;
  }
}

/// "Finalizing a communicator": ncclCommFinalize waits for what is under way, here within the deadline.
NcclComm::~NcclComm() {
  if (!comm_) return;
  try {
    check(ncclCommFinalize(comm_), "end of the communicator");
    ncclCommDestroy(std::exchange(comm_, nullptr));
  } catch (...) {
    abort();
  }
}

void NcclComm::check(ncclResult_t status, std::string const& what) {
  auto const start = Clock::now();
  while (status == ncclInProgress) {
    if (Clock::now() - start > deadline_) {
      abort();
      throw PeerLostError(-1, concat("NCCL: ", what, " on rank ", rank_, " (", host_name(), ")", " did not come to an end within ", deadline_.count(),
                                     " ms; a rank is missing. NCCL_DEBUG=INFO says what each rank waits for"));
    }
    std::this_thread::sleep_for(std::chrono::microseconds(50));
    if (comm_ && ncclCommGetAsyncError(comm_, &status) != ncclSuccess) status = ncclInternalError;
  }
  if (status != ncclSuccess) failed(status, what);
}

/// "Error handling and communicator abort": an error of a peer or the network is reported here only.
void NcclComm::look(std::string const& what) {
  ncclResult_t status = ncclSuccess;
  if (!comm_) throw PeerLostError(-1, concat("NCCL: ", what, " on rank ", rank_, " (", host_name(), ")", ": the communicator was ended after an earlier error"));
  if (ncclCommGetAsyncError(comm_, &status) != ncclSuccess) status = ncclInternalError;
  if (status != ncclSuccess && status != ncclInProgress) failed(status, what);
}

void NcclComm::failed(ncclResult_t status, std::string const& what) {
  std::string const message = concat("NCCL: ", what, " on rank ", rank_, " (", host_name(), ")", ": ", ncclGetErrorString(status), ": ", ncclGetLastError(comm_),
                                     "; NCCL_DEBUG=INFO says more");
  abort();
  if (status == ncclRemoteError || status == ncclSystemError) throw PeerLostError(-1, message);
  throw InternalError(message);
}

void NcclComm::abort() noexcept {
  if (comm_) ncclCommAbort(std::exchange(comm_, nullptr));
}

ncclDataType_t nccl_type(Dtype dtype) {
  switch (dtype) {
    case Dtype::fp32: return ncclFloat32;
    case Dtype::fp16: return ncclFloat16;
    case Dtype::bf16: return ncclBfloat16;
    case Dtype::fp64: return ncclFloat64;
    case Dtype::int32: return ncclInt32;
    case Dtype::int64: return ncclInt64;
    case Dtype::uint8: return ncclUint8;
  }
  throw InternalError(concat("NCCL has no type for ", name_of(dtype)));
}

ncclRedOp_t nccl_op(ReduceOp op) {
  switch (op) {
    case ReduceOp::max: return ncclMax;
    case ReduceOp::min: return ncclMin;
    case ReduceOp::sum: break;
  }
  return ncclSum;
}

}  // namespace tessera::comm::detail
#endif
