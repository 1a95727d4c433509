#pragma once
/// NCCL's symmetric windows, which libraries before 2.27 do not have.

#ifdef TESSERA_HAVE_CUDA
#include <nccl.h>

#include <cstddef>

namespace tessera::comm::detail {

/// True when this build and the library, of @p version, have ncclCommWindowRegister.
bool nccl_has_windows(int version);
/// ncclCommWindowRegister with NCCL_WIN_COLL_SYMMETRIC. Every rank of @p comm calls it, in the same
/// order with the same bytes. NCCL writes @p window when the call is complete, also after it has
/// returned; null then: NCCL makes no windows.
ncclResult_t register_window(ncclComm_t comm, void* data, std::size_t bytes, void** window);
/// Local. No operation may use the memory any more.
ncclResult_t deregister_window(ncclComm_t comm, void* window);

}  // namespace tessera::comm::detail
#endif
