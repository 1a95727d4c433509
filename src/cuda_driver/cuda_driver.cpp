// The three calls of the CUDA driver that Kokkos makes, found when they are made: a program linked
// to libcuda.so.1 itself would not start on a machine without a driver. "CUDA Driver API" manual,
// sections "Context Management" and "Stream Management".
#include <cuda.h>
#include <dlfcn.h>

namespace {

template <class Function>
Function* find(char const* name) {
  static void* const driver = dlopen("libcuda.so.1", RTLD_NOW);
  return driver ? reinterpret_cast<Function*>(dlsym(driver, name)) : nullptr;
}

template <class... Arguments>
CUresult call(char const* name, Arguments... arguments) {
  auto* const function = find<CUresult(Arguments...)>(name);
  return function ? function(arguments...) : CUDA_ERROR_NOT_INITIALIZED;
}

}  // namespace

extern "C" {
__attribute__((visibility("hidden"))) CUresult CUDAAPI cuCtxGetDevice(CUdevice* device) {
  return call("cuCtxGetDevice", device);
}
__attribute__((visibility("hidden"))) CUresult CUDAAPI cuCtxPushCurrent(CUcontext context) {
  return call("cuCtxPushCurrent_v2", context);
}
__attribute__((visibility("hidden"))) CUresult CUDAAPI cuStreamGetCtx(CUstream stream,
                                                                      CUcontext* context) {
  return call("cuStreamGetCtx", stream, context);
}
}
