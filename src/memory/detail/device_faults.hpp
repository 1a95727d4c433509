#pragma once
/// What an error code of the CUDA runtime means for a run. Numbers are those of cudaError_t ("CUDA
/// Runtime API", "Data types used by CUDA Runtime"), which are stable.

namespace tessera::memory::detail {

struct DeviceFault {
  bool hardware;  ///< the device or its links are at fault: no other call to it makes sense, and
                  ///< the node should be left out
  char const* advice;  ///< what to do
};
DeviceFault fault_of(int cuda_error);

/// Throws PeerLostError (exit code 69) for hardware, ConfigError (78) for drivers and
/// architectures, else InternalError (70), with the text of the call, the runtime's words and the
/// advice.
[[noreturn]] void throw_fault(int cuda_error, char const* call, char const* name, char const* text);

}  // namespace tessera::memory::detail
