// User guide sections "Window Registration", "NCCL API Supported Flags". The functions are weak
// references, so that programs built with a newer NCCL start with an older library.
#include "nccl/nccl_windows.hpp"

#ifdef TESSERA_HAVE_CUDA

#if NCCL_VERSION_CODE >= NCCL_VERSION(2, 27, 0)
#pragma weak ncclCommWindowRegister
#pragma weak ncclCommWindowDeregister

namespace tessera::comm::detail {

bool nccl_has_windows(int version) {
  return version >= NCCL_VERSION(2, 27, 0) && &ncclCommWindowRegister && &ncclCommWindowDeregister;
}

ncclResult_t register_window(ncclComm_t comm, void* data, std::size_t bytes, void** window) {
  static_assert(sizeof(ncclWindow_t) == sizeof(void*));
  return ncclCommWindowRegister(comm, data, bytes, reinterpret_cast<ncclWindow_t*>(window),
                                NCCL_WIN_COLL_SYMMETRIC);
}

ncclResult_t deregister_window(ncclComm_t comm, void* window) {
  return ncclCommWindowDeregister(comm, static_cast<ncclWindow_t>(window));
}

}  // namespace tessera::comm::detail
#else

namespace tessera::comm::detail {

bool nccl_has_windows(int) { return false; }
ncclResult_t register_window(ncclComm_t, void*, std::size_t, void**) { return ncclInvalidUsage; }
ncclResult_t deregister_window(ncclComm_t, void*) { return ncclInvalidUsage; }

}  // namespace tessera::comm::detail
#endif
#endif
