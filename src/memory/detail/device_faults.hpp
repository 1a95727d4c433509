#pragma once
/// Meaning of CUDA runtime errors for a run. Numbers are those of cudaError_t ("CUDA
/// Runtime API", "Data types used by CUDA Runtime"), which are stable.

namespace tessera::memory::detail {

struct DeviceFault {
  bool hardware;       ///< the device or a link has failed: stop calling it and exclude the node
  char const* advice;  ///< what to try
};
DeviceFault fault_of(int cuda_error);

/// Throws PeerLostError (exit code 69) for hardware, ConfigError (78) for drivers and
/// architectures, else InternalError (70). The message has the call, the error text of CUDA and the
/// advice.
[[noreturn]] void throw_fault(int cuda_error, char const* call, char const* name, char const* text);

}  // namespace tessera::memory::detail
