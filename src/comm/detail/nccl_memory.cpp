// Memory of NCCL's, user guide sections "User Buffer Registration" (ncclCommRegister, local
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
constexpr std::chrono::seconds standstill{30};
}

/// What is registered where; shared by the allocator and all blocks, so that either may go first.
struct NcclMemory::Registrations {
  std::vector<NcclComm*> comms;                 ///< empty once they have ended
  std::map<void*, std::vector<void*>> handles;  ///< by address: one for each communicator
  bool stuck = false;  ///< a stream has not come past its work: waited for once only

  bool add(void* data, std::size_t bytes) {
    auto& mine = handles[data];
    for (auto* const comm : comms) {
      ncclResult_t status = ncclInvalidUsage;
      void* handle = nullptr;
      comm->while_there([&](ncclComm_t c) { status = ncclCommRegister(c, data, bytes, &handle); });
      if (status != ncclSuccess) return false;
      mine.push_back(handle);
    }
    return true;
  }
  /// A communicator that was aborted has dropped its registrations itself.
  void remove(void* data) noexcept {
    auto const found = handles.find(data);
    if (found == handles.end()) return;
    for (std::size_t c = 0; c < comms.size() && c < found->second.size(); ++c)
      comms[c]->while_there([&](ncclComm_t comm) { ncclCommDeregister(comm, found->second[c]); });
    handles.erase(found);
  }
  void close() noexcept {
    while (!handles.empty()) remove(handles.begin()->first);
    comms.clear();
  }
};

/// Memory of ncclMemAlloc, counted.
class NcclMemory::Block {
 public:
  Block(std::shared_ptr<Registrations> registrations, std::string name, memory::Purpose purpose,
        std::size_t bytes)
      : registrations_(std::move(registrations)),
        name_(std::move(name)),
        purpose_(purpose),
        bytes_(bytes) {
    if (ncclMemAlloc(&data_, bytes) != ncclSuccess) {
      cudaGetLastError();  // said here; nobody shall find it later
      data_ = nullptr;
      return;
    }
    memory::MemoryTracker::of_device().add(purpose_, name_, bytes_);
    registered_ = registrations_->add(data_, bytes_);
  }
  /// ncclMemFree takes the memory at once. While a stream stands still its memory stays.
  ~Block() {
    if (!data_) return;
    auto& stuck = registrations_->stuck;
    stuck = stuck || !memory::wait_for_streams(standstill);
    registrations_->remove(data_);
    if (!stuck) ncclMemFree(data_);
    memory::MemoryTracker::of_device().remove(purpose_, name_, bytes_);
  }
  Block(Block const&) = delete;
  Block& operator=(Block const&) = delete;

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

/// If one rank passes registered memory to an operation, all must; so all ranks have it or none.
std::shared_ptr<void> NcclMemory::allocate(std::string const& name, memory::Purpose purpose,
                                           std::size_t bytes) {
  if (bytes == 0) return allocate_together(host_, name, purpose, bytes);
  auto block = std::make_shared<Block>(registrations_, name, purpose, bytes);
  bool const mine = block->registered();
  if (!agree(host_, mine)) {
    block.reset();
    if (!std::exchange(told_, true))
      log::debug(concat("NCCL: ", name, " (", bytes,
                        " bytes) is ordinary device memory, and so may be more: ",
                        mine ? "another rank" : "ncclMemAlloc or ncclCommRegister",
                        " refused registered memory; NCCL copies through buffers of its own"));
    return allocate_together(host_, name, purpose, bytes);
  }
  auto const stream = memory::make_stream_queue("zeroing");
  memory::zero(*stream, block->data(), bytes);
  stream->record().wait(name, std::chrono::minutes(1));
  void* const data = block->data();
  return {std::move(block), data};
}

}  // namespace tessera::comm::detail
#endif
