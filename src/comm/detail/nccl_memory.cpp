// User guide sections "User Buffer Registration" (ncclCommRegister, local
// registration) and "Memory Allocator".
#include "detail/nccl_memory.hpp"

#ifdef TESSERA_HAVE_CUDA
#include <cuda_runtime_api.h>

#include <algorithm>
#include <chrono>
#include <utility>

#include "detail/device_operands.hpp"
#include "tessera/core/log.hpp"
#include "tessera/memory/buffer.hpp"
#include "tessera/memory/device.hpp"

namespace tessera::comm::detail {

namespace {
constexpr std::chrono::seconds stream_timeout{30};
}

/// The registrations of all allocations. Shared by the allocator and the allocations, which are
/// destroyed in any order.
struct NcclMemory::Registrations {
  std::vector<NcclComm*> comms;                 ///< empty after close()
  std::map<void*, std::vector<void*>> handles;  ///< by address, one per communicator
  bool stuck = false;  ///< a stream has not completed within the timeout: do not wait again

  bool add(void* data, std::size_t bytes) {
    auto& mine = handles[data];
    for (auto* const comm : comms) {
      ncclResult_t status = ncclInvalidUsage;
      void* handle = nullptr;
      comm->if_open([&](ncclComm_t c) { status = ncclCommRegister(c, data, bytes, &handle); });
      if (status != ncclSuccess) return false;
      mine.push_back(handle);
    }
    return true;
  }
  /// An aborted communicator has no registrations left.
  void remove(void* data) noexcept {
    auto const found = handles.find(data);
    if (found == handles.end()) return;
    for (std::size_t c = 0; c < comms.size() && c < found->second.size(); ++c)
      comms[c]->if_open([&](ncclComm_t comm) { ncclCommDeregister(comm, found->second[c]); });
    handles.erase(found);
  }
  void close() noexcept {
    while (!handles.empty()) remove(handles.begin()->first);
    comms.clear();
  }
};

/// Memory of ncclMemAlloc.
class NcclMemory::Allocation {
 public:
  Allocation(std::shared_ptr<Registrations> registrations, std::string name,
             memory::Purpose purpose, std::size_t bytes)
      : registrations_(std::move(registrations)),
        name_(std::move(name)),
        purpose_(purpose),
        bytes_(bytes) {
    if (ncclMemAlloc(&data_, bytes) != ncclSuccess) {
      cudaGetLastError();  // clears the error, so that no later call reports it
      data_ = nullptr;
      return;
    }
    memory::MemoryTracker::of_device().add(purpose_, name_, bytes_);
    registered_ = registrations_->add(data_, bytes_);
  }
  /// ncclMemFree is not stream ordered, so the streams are waited for. If one does not complete,
  /// the memory leaks.
  ~Allocation() {
    if (!data_) return;
    auto& stuck = registrations_->stuck;
    stuck = stuck || !memory::wait_for_streams(stream_timeout);
    registrations_->remove(data_);
    if (!stuck) ncclMemFree(data_);
    memory::MemoryTracker::of_device().remove(purpose_, name_, bytes_);
  }
  Allocation(Allocation const&) = delete;
  Allocation& operator=(Allocation const&) = delete;

  void* data() const { return data_; }
  bool registered() const { return registered_; }

 private:
  std::shared_ptr<Registrations> registrations_;
  std::string name_;
  memory::Purpose purpose_;
  std::size_t bytes_;
  void* data_ = nullptr;
  bool registered_ = false;
};

NcclMemory::NcclMemory(Collectives& host, std::vector<NcclComm*> comms)
    : host_(host), registrations_(std::make_shared<Registrations>()) {
  registrations_->comms = std::move(comms);
}

void NcclMemory::close() noexcept { registrations_->close(); }

/// If one rank passes registered memory to an operation, all ranks must.
std::shared_ptr<void> NcclMemory::allocate(std::string const& name, memory::Purpose purpose,
                                           std::size_t bytes) {
  if (bytes == 0) return allocate_on_all_ranks(host_, name, purpose, bytes);
  auto allocation = std::make_shared<Allocation>(registrations_, name, purpose, bytes);
  bool const mine = allocation->registered();
  if (!agree(host_, mine)) {
    allocation.reset();
    if (!std::exchange(logged_, true))
      log::debug(concat(
          "NCCL: ", name, " (", bytes, " bytes) is ordinary device memory, because ",
          mine ? "registration failed on another rank" : "ncclMemAlloc or ncclCommRegister failed",
          "; NCCL copies it through internal buffers. Logged once"));
    return allocate_on_all_ranks(host_, name, purpose, bytes);
  }
  auto const stream = memory::make_stream_queue("zeroing");
  memory::zero(*stream, allocation->data(), bytes);
  stream->record().wait(name, std::chrono::minutes(1));
  void* const data = allocation->data();
  return {std::move(allocation), data};
}

}  // namespace tessera::comm::detail
#endif
