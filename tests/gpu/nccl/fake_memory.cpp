/// Memory of the fake NCCL: allocation, registration and symmetric windows.
#include "fake_state.hpp"
#include "tessera/core/error.hpp"

namespace tessera::test {

bool is_registered(State const& s, NcclRange range) {
  if (range.bytes == 0) return true;
  for (auto const& [begin, memory] : s.registered)
    if (range.begin >= begin && range.begin + range.bytes <= begin + memory.bytes) return true;
  return false;
}

std::int64_t place(State const& s, NcclRange range) {
  if (range.bytes == 0) return -1;
  for (auto const& [begin, memory] : s.registered)
    if (memory.window > 0 && range.begin >= begin &&
        range.begin + range.bytes <= begin + memory.bytes)
      return (std::int64_t{memory.window} << 40) + (range.begin - begin);
  return -1;
}

ncclWindow_t as_window(std::byte* data) {
  return static_cast<ncclWindow_t>(static_cast<void*>(data));
}

}  // namespace tessera::test

using namespace tessera::test;

extern "C" {

ncclResult_t ncclMemAlloc(void** data, std::size_t bytes) {
  *data = nccl_faults().memory_refused ? nullptr : device().allocate_apart(bytes);
  if (!*data) return ncclUnhandledCudaError;
  std::lock_guard const lock(world().mutex);
  world().blocks[*data] = bytes;
  return ncclSuccess;
}

ncclResult_t ncclMemFree(void* data) {
  {
    std::lock_guard const lock(world().mutex);
    if (world().blocks.erase(data) == 0)
      world().breaches.push_back("ncclMemFree of memory that is not ncclMemAlloc's");
    for (auto* const comm : world().communicators)
      if (comm->state->registered.contains(static_cast<std::byte*>(data)))
        world().breaches.push_back("ncclMemFree of memory that is registered");
  }
  device().free_apart(data);
  return ncclSuccess;
}

ncclResult_t ncclCommRegister(ncclComm_t const comm, void* data, std::size_t bytes, void** handle) {
  auto const s = find(comm, "ncclCommRegister");
  if (!s || nccl_faults().register_refused) return ncclSystemError;
  std::lock_guard const lock(s->mutex);
  if (!ready(*s, "ncclCommRegister")) return ncclInvalidArgument;
  if (!in_device_memory({static_cast<std::byte*>(data), bytes}))
    breach("ncclCommRegister of what is not device memory");
  s->registered[static_cast<std::byte*>(data)] = {bytes, 0};
  *handle = data;
  return ncclSuccess;
}

/// Only the first and only one registration of complete memory of ncclMemAlloc; every rank calls
/// it.
ncclResult_t ncclCommWindowRegister(ncclComm_t comm, void* data, std::size_t bytes,
                                    ncclWindow_t* window, int flags) {
  auto const s = find(comm, "ncclCommWindowRegister");
  if (!s) return ncclInvalidArgument;
  std::lock_guard const lock(s->mutex);
  if (nccl_faults().version < 22700) breach("ncclCommWindowRegister, which this version lacks");
  if (!ready(*s, "ncclCommWindowRegister")) return ncclInvalidArgument;
  auto* const begin = static_cast<std::byte*>(data);
  {
    std::lock_guard const world_lock(world().mutex);
    auto const block = world().blocks.find(data);
    if (block == world().blocks.end() || block->second < bytes)
      world().breaches.push_back("a window of what is not memory of ncclMemAlloc");
  }
  if (flags != NCCL_WIN_COLL_SYMMETRIC) breach("a window that is not symmetric");
  if (s->registered.contains(begin)) breach("a window of memory that is registered");
  *window = nullptr;
  if (nccl_faults().window_refused) {
    world().last_error = "the peer's memory cannot be mapped";
    return s->error = ncclSystemError;
  }
  s->registered[begin] = {bytes, ++s->windows};
  s->registering = begin;
  s->window_into = window;
  s->exchange->offer_window(s->windows, bytes);
  ::tessera::test::begin(s, Phase::registering);
  return ncclSuccess;  // as NCCL 2.28 does; ncclCommGetAsyncError says that it continues
}

ncclResult_t ncclCommWindowDeregister(ncclComm_t comm, ncclWindow_t window) {
  auto const s = find(comm, "ncclCommWindowDeregister");
  if (!s) return ncclInvalidArgument;
  std::lock_guard const lock(s->mutex);
  if (s->queued > 0) breach("ncclCommWindowDeregister while an operation may use the window");
  auto const found = s->registered.find(static_cast<std::byte*>(static_cast<void*>(window)));
  if (found == s->registered.end() || found->second.window == 0)
    breach("ncclCommWindowDeregister of what is no window");
  else
    s->registered.erase(found);
  return ncclSuccess;
}

ncclResult_t ncclCommDeregister(ncclComm_t const comm, void* handle) {
  auto const s = find(comm, "ncclCommDeregister");
  if (!s) return ncclInvalidArgument;
  std::lock_guard const lock(s->mutex);
  auto const found = s->registered.find(static_cast<std::byte*>(handle));
  if (found == s->registered.end() || found->second.window > 0)
    breach("ncclCommDeregister of what is not registered");
  else
    s->registered.erase(found);
  return ncclSuccess;
}
}
