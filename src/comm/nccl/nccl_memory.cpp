// User guide sections "User Buffer Registration" (ncclCommRegister, local registration), "Window
// Registration" and "Memory Allocator".
#include "nccl/nccl_memory.hpp"

#ifdef TESSERA_HAVE_CUDA
#include <cuda_runtime_api.h>

#include <algorithm>
#include <chrono>
#include <exception>
#include <utility>

#include "base/device_operands.hpp"
#include "nccl/nccl_collectives.hpp"
#include "nccl/nccl_windows.hpp"
#include "tessera/core/error.hpp"
#include "tessera/core/log.hpp"
#include "tessera/memory/buffer.hpp"
#include "tessera/memory/device.hpp"

namespace tessera::comm::detail {

namespace {

/// How long streams may take to complete their work: at most, and when only an abort may end it.
constexpr std::chrono::milliseconds stream_timeout{30'000}, unwinding_timeout{500};

/// Memory of ncclMemAlloc.
struct Block {
  void* data = nullptr;
  std::string name;
  memory::Purpose purpose;
  std::size_t bytes;
};

void free_block(Block const& block) noexcept {
  ncclMemFree(block.data);
  memory::MemoryTracker::of_device().remove(block.purpose, block.name, block.bytes);
}

}  // namespace

/// The registrations of all allocations. Shared by the allocator and the allocations, which are
/// destroyed in any order.
struct NcclMemory::Registrations {
  struct Handles {
    bool windows = false;
    std::vector<void*> of_comm;
  };
  std::vector<NcclComm*> comms;      ///< empty after close()
  std::map<void*, Handles> handles;  ///< by address
  std::vector<Block> ownerless;      ///< that a stream may still use
  std::chrono::milliseconds timeout = stream_timeout;
  bool busy = false;  ///< the last wait for the streams was in vain

  bool add(void* data, std::size_t bytes) {
    auto& mine = handles[data];
    for (auto* const comm : comms) {
      ncclResult_t status = ncclInvalidUsage;
      void* handle = nullptr;
      comm->if_open([&](ncclComm_t c) { status = ncclCommRegister(c, data, bytes, &handle); });
      if (status != ncclSuccess) return false;
      mine.of_comm.push_back(handle);
    }
    return true;
  }
  /// False when NCCL makes no windows. Makes the same calls on every rank, because each waits for
  /// all ranks. After a failure NCCL's communicators are unusable.
  bool add_windows(std::string const& name, void* data, std::size_t bytes) {
    auto& mine = handles[data];
    mine = {true, std::vector<void*>(comms.size(), nullptr)};
    for (std::size_t c = 0; c < comms.size(); ++c)
      comms[c]->call(concat("ncclCommWindowRegister of ", name, " (", bytes, " bytes)"),
                     [&, window = &mine.of_comm[c]](ncclComm_t comm) {
                       return register_window(comm, data, bytes, window);
                     });
    return std::none_of(mine.of_comm.begin(), mine.of_comm.end(), [](auto* w) { return !w; });
  }
  /// An aborted communicator has no registrations left.
  void remove(void* data) noexcept {
    auto const found = handles.find(data);
    if (found == handles.end()) return;
    auto const& [windows, of_comm] = found->second;
    for (std::size_t c = 0; c < comms.size() && c < of_comm.size(); ++c)
      comms[c]->if_open([&, handle = of_comm[c]](ncclComm_t comm) {
        if (!windows)
          ncclCommDeregister(comm, handle);
        else if (handle)
          deregister_window(comm, handle);
      });
    handles.erase(found);
  }
  void abort() noexcept { NcclComm::abort_all(comms); }
  bool aborted() const noexcept {
    return std::any_of(comms.begin(), comms.end(), [](auto* comm) { return !comm->is_open(); });
  }
  /// Whether the streams complete all their work within a time that does not delay the end of a
  /// run after an error.
  bool streams_complete() noexcept {
    bool const after_error = aborted() || std::uncaught_exceptions() > 0;
    busy = !memory::wait_for_streams(busy          ? std::chrono::milliseconds(0)
                                     : after_error ? std::min(timeout, unwinding_timeout)
                                                   : timeout);
    return !busy;
  }
  /// ncclMemFree is not stream ordered. Memory that a stream may use stays until close(), and is
  /// leaked after it.
  void release(Block const& block) noexcept {
    if (streams_complete()) {
      remove(block.data);
      free_block(block);
    } else if (!comms.empty()) {
      ownerless.push_back(block);
    } else {
      memory::MemoryTracker::of_device().remove(block.purpose, block.name, block.bytes);
    }
  }
  void close() noexcept {
    bool const in_use = !handles.empty() || !ownerless.empty();
    busy = in_use && !memory::wait_for_streams(aborted() ? abort_grace : timeout);
    if (busy) {
      abort();
      busy = !memory::wait_for_streams(abort_grace);
    }
    while (!handles.empty()) remove(handles.begin()->first);
    comms.clear();
    for (auto const& block : std::exchange(ownerless, {})) release(block);
  }
};

class NcclMemory::Allocation {
 public:
  Allocation(std::shared_ptr<Registrations> registrations, std::string name,
             memory::Purpose purpose, std::size_t bytes)
      : registrations_(std::move(registrations)), block_{nullptr, std::move(name), purpose, bytes} {
    if (!allocate()) {
      memory::trim_device_pool();
      if (!allocate()) return;
    }
    memory::MemoryTracker::of_device().add(purpose, block_.name, bytes);
  }
  ~Allocation() {
    if (block_.data) registrations_->release(block_);
  }
  Allocation(Allocation const&) = delete;
  Allocation& operator=(Allocation const&) = delete;

  void* data() const { return block_.data; }

 private:
  bool allocate() {
    if (ncclMemAlloc(&block_.data, block_.bytes) == ncclSuccess) return true;
    cudaGetLastError();  // clears the error, so that no later call reports it
    block_.data = nullptr;
    return false;
  }

  std::shared_ptr<Registrations> registrations_;
  Block block_;
};

NcclMemory::NcclMemory(Collectives& host, std::vector<NcclComm*> comms, NcclWindows windows,
                       Deadline deadline)
    : host_(host), windows_(windows), registrations_(std::make_shared<Registrations>()) {
  registrations_->comms = std::move(comms);
  registrations_->timeout = std::min(stream_timeout, deadline);
}

void NcclMemory::close() noexcept { registrations_->close(); }

void NcclMemory::log_once(std::string const& text) {
  if (!std::exchange(logged_, true) && host_.rank() == 0)
    log::warning(concat("NCCL: ", text, ", which may be slower. Logged once"));
}

/// Registers memory in one way on all ranks. A failed window ends the communicators: NCCL reports
/// the error of a non-blocking call as one of the communicator, which only an abort clears.
NcclMemoryKind NcclMemory::enter(std::string const& name, void* data, std::size_t bytes) {
  static constexpr char advice[] = "; NCCL_WIN_ENABLE=0 does without symmetric windows";
  if (windows_.possible) {
    bool mine = false;
    try {
      mine = registrations_->add_windows(name, data, bytes);
    } catch (PeerLostError const& error) {
      registrations_->abort();
      throw PeerLostError(-1, concat(error.what(), advice));
    } catch (Error const& error) {
      registrations_->abort();
      throw ConfigError(concat(error.what(), advice));
    }
    if (agree(host_, mine)) return NcclMemoryKind::window;
    registrations_->remove(data);
    windows_.possible = false;
    log_once(concat("there is no symmetric window for ", name, " (", bytes,
                    " bytes) on every rank; memory is registered by ncclCommRegister"));
  }
  TESSERA_VALIDATE(!windows_.required, ConfigError, "--nccl_cta_policy zero: copy engines need ",
                   name,
                   " in a symmetric window, and NCCL makes none on every rank; see "
                   "NCCL_CUMEM_ENABLE and NCCL_LOCAL_REGISTER, or leave the policy out");
  if (agree(host_, registrations_->add(data, bytes))) return NcclMemoryKind::registered;
  registrations_->remove(data);
  return NcclMemoryKind::plain;
}

/// If one rank passes registered memory to an operation, all ranks must.
std::shared_ptr<void> NcclMemory::allocate(std::string const& name, memory::Purpose purpose,
                                           std::size_t bytes) {
  if (bytes == 0) return allocate_on_all_ranks(host_, name, purpose, bytes);
  auto allocation = std::make_shared<Allocation>(registrations_, name, purpose, bytes);
  auto const kind = agree(host_, allocation->data() != nullptr)
                        ? enter(name, allocation->data(), bytes)
                        : NcclMemoryKind::plain;
  if (kind == NcclMemoryKind::plain) {
    allocation.reset();
    log_once(concat(name, " (", bytes,
                    " bytes) is ordinary device memory, because ncclMemAlloc or "
                    "ncclCommRegister failed on a rank; NCCL copies it through internal buffers"));
    auto ordinary = allocate_on_all_ranks(host_, name, purpose, bytes);
    TESSERA_VALIDATE(!windows_.required, ConfigError, "--nccl_cta_policy zero: copy engines need ",
                     name,
                     " in a symmetric window, and ncclMemAlloc failed on a rank; leave the "
                     "policy out");
    note_nccl_buffer(kind);
    return ordinary;
  }
  note_nccl_buffer(kind);
  auto const stream = memory::make_stream_queue("zeroing");
  memory::zero(*stream, allocation->data(), bytes);
  stream->record().wait(name, std::chrono::minutes(1));
  void* const data = allocation->data();
  return {std::move(allocation), data};
}

}  // namespace tessera::comm::detail
#endif
