// NCCL's communicators. Sections are those of the "NVIDIA Collective Communication Library" user
// guide.
#include "nccl/nccl_comm.hpp"

#ifdef TESSERA_HAVE_CUDA

#include <chrono>
#include <thread>
#include <utility>

#include "tessera/core/error.hpp"
#include "tessera/core/process.hpp"
#include "tessera/memory/device.hpp"

namespace tessera::comm::detail {
namespace {

using Clock = std::chrono::steady_clock;

/// Polling time before the first sleep. A thread of NCCL's usually completes a call within it.
constexpr std::chrono::microseconds polling{200};

/// "Creating a communicator with options": with blocking = 0 no call blocks;
/// ncclCommGetAsyncError reports its completion.
/// ncclConfig_t: maxCTAs is the most thread blocks, so multiprocessors, that an operation takes.
/// CTAPolicy: see "NCCL Communicator CTA Policy Flags"; left undefined, NCCL_CTA_POLICY decides.
ncclConfig_t non_blocking([[maybe_unused]] char const* name, NcclLimits limits) {
  ncclConfig_t config = NCCL_CONFIG_INITIALIZER;
  config.blocking = 0;
  if (limits.max_ctas > 0) config.maxCTAs = limits.max_ctas;
#if NCCL_VERSION_CODE >= NCCL_VERSION(2, 27, 0)
  config.commName = name;
  if (limits.cta_policy == NcclCtaPolicy::efficiency) config.CTAPolicy = NCCL_CTA_POLICY_EFFICIENCY;
#endif
#if NCCL_VERSION_CODE >= NCCL_VERSION(2, 28, 0)
  if (limits.cta_policy == NcclCtaPolicy::zero) config.CTAPolicy = NCCL_CTA_POLICY_ZERO;
#endif
  return config;
}

}  // namespace

void NcclComm::start(int ranks, ncclUniqueId const& id) {
  auto config = non_blocking(name_.c_str(), limits_);
  ncclResult_t status = ncclSuccess;
  memory::trim_device_pool();  // NCCL's buffers are no memory of the pool
  {
    std::lock_guard const lock(mutex_);
    status = ncclCommInitRankConfig(&comm_, ranks, id, rank_, &config);
  }
  wait_until_done(status, concat("ncclCommInitRankConfig of ", ranks, " ranks"));
}

/// "Creating more communicators". The new one is usable when the parent reports
/// completion. config.splitShare stays 0: communicators that share resources serialize their
/// kernels, and these two must overlap.
void NcclComm::split_from(NcclComm& parent, int color, int key) {
  std::string const what = concat("ncclCommSplit for ", name_);
  auto config = non_blocking(name_.c_str(), limits_);
  memory::trim_device_pool();
  parent.call(what, [&](ncclComm_t comm) {
    return ncclCommSplit(comm, color < 0 ? NCCL_SPLIT_NOCOLOR : color, key, &comm_, &config);
  });
  if (color < 0) return;
  wait_until_done(async_error(what), what);
}

void NcclComm::call(std::string const& what, std::function<ncclResult_t(ncclComm_t)> const& body) {
  ncclResult_t status = ncclSuccess;
  {
    std::lock_guard const lock(mutex_);
    expect_open(what);
    status = body(comm_);
  }
  // ncclCommSplit and ncclCommWindowRegister report success and continue in a thread of NCCL's.
  if (status == ncclSuccess) status = async_error(what);
  wait_until_done(status, what);
}

/// "Group Calls", "Nonblocking Group Operation": ncclGroupEnd is also called after an
/// error in the group.
void NcclComm::group(std::string const& what, std::function<ncclResult_t(ncclComm_t)> const& body) {
  call(what, [&](ncclComm_t comm) {
    auto status = ncclGroupStart();
    if (status != ncclSuccess) return status;
    status = body(comm);
    auto const end = ncclGroupEnd();
    return status == ncclSuccess || status == ncclInProgress ? end : status;
  });
}

void NcclComm::check_async_error(std::string const& what) {
  auto const status = async_error(what);
  if (status != ncclSuccess && status != ncclInProgress) throw_error(status, what);
}

/// "Error handling and communicator abort": the only report of an error of a peer or the network.
ncclResult_t NcclComm::async_error(std::string const& what) {
  std::lock_guard const lock(mutex_);
  expect_open(what);
  ncclResult_t status = ncclSuccess;
  return ncclCommGetAsyncError(comm_, &status) == ncclSuccess ? status : ncclInternalError;
}

void NcclComm::wait_until_done(ncclResult_t status, std::string const& what) {
  auto const start = Clock::now();
  while (status == ncclInProgress) {
    auto const waited = Clock::now() - start;
    if (waited > deadline_)
      throw PeerLostError(
          -1, concat(with_rank(what), " did not complete within ", deadline_text(deadline_),
                     "; a rank is missing. NCCL_DEBUG=INFO shows what each rank waits for"));
    if (waited < polling)
      std::this_thread::yield();
    else
      std::this_thread::sleep_for(std::chrono::microseconds(50));
    status = async_error(what);
  }
  if (status != ncclSuccess) throw_error(status, what);
}

std::string NcclComm::with_rank(std::string const& what) const {
  return concat(what, " on rank ", rank_, " (", host_name(), ")");
}

void NcclComm::expect_open(std::string const& what) const {
  if (!comm_)
    throw PeerLostError(
        -1, concat(with_rank(what), ": the communicator was aborted after an earlier error"));
}

void NcclComm::throw_error(ncclResult_t status, std::string const& what) {
  std::string text;
  {
    std::lock_guard const lock(mutex_);
    text = concat(with_rank(what), ": ", ncclGetErrorString(status), ": ", ncclGetLastError(comm_),
                  "; NCCL_DEBUG=INFO shows details");
  }
  if (status == ncclRemoteError || status == ncclSystemError) throw PeerLostError(-1, text);
  throw InternalError(text);
}

/// "Finalizing a communicator": waits in the background for operations in flight; after that
/// "Destroying a communicator" is local.
void NcclComm::finish() noexcept {
  try {
    call("ncclCommFinalize", [](ncclComm_t comm) { return ncclCommFinalize(comm); });
    std::lock_guard const lock(mutex_);
    ncclCommDestroy(std::exchange(comm_, nullptr));
  } catch (std::exception const&) {
    abort();
  }
}

void NcclComm::abort() noexcept {
  std::lock_guard const lock(mutex_);
  if (comm_) ncclCommAbort(std::exchange(comm_, nullptr));
}

/// ncclCommAbort returns when the communicator's kernels have left their streams, where they may
/// stand behind kernels of another communicator. A group tells all communicators first; NCCL has it
/// since 2.22, and several communicators here need 2.26.
void NcclComm::abort_all(std::vector<NcclComm*> const& comms) noexcept {
  if (comms.size() == 1) return comms.front()->abort();
  std::vector<std::unique_lock<std::mutex>> locks;
  for (auto* const comm : comms) locks.emplace_back(comm->mutex_);
  ncclGroupStart();
  for (auto* const comm : comms)
    if (comm->comm_) ncclCommAbort(std::exchange(comm->comm_, nullptr));
  ncclGroupEnd();
}

bool NcclComm::is_open() noexcept {
  std::lock_guard const lock(mutex_);
  return comm_ != nullptr;
}

void NcclComm::if_open(std::function<void(ncclComm_t)> const& body) {
  std::lock_guard const lock(mutex_);
  if (comm_) body(comm_);
}

ncclDataType_t nccl_type(Dtype dtype) {
  switch (dtype) {
    case Dtype::fp32:
      return ncclFloat32;
    case Dtype::fp16:
      return ncclFloat16;
    case Dtype::bf16:
      return ncclBfloat16;
    case Dtype::fp64:
      return ncclFloat64;
    case Dtype::int32:
      return ncclInt32;
    case Dtype::int64:
      return ncclInt64;
    case Dtype::uint8:
      return ncclUint8;
  }
  throw InternalError(concat("NCCL has no type for ", name_of(dtype)));
}

ncclRedOp_t nccl_op(ReduceOp op) {
  switch (op) {
    case ReduceOp::max:
      return ncclMax;
    case ReduceOp::min:
      return ncclMin;
    case ReduceOp::sum:
      break;
  }
  return ncclSum;
}

}  // namespace tessera::comm::detail
#endif
