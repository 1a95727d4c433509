#pragma once
/// What the errors of the CUDA runtime mean for a run.

#include <string_view>

#include "tessera/memory/device.hpp"

namespace tessera::memory::detail {

/// Meaning of CUDA runtime errors for a run. Numbers are those of cudaError_t ("CUDA
/// Runtime API", "Data types used by CUDA Runtime"), which are stable.
struct DeviceFault {
  bool hardware;       ///< the device or a link has failed: stop calling it and exclude the node
  char const* advice;  ///< what to try
};
DeviceFault fault_of(int error);

/// Throws PeerLostError (exit code 69) for hardware, ConfigError (78) for drivers and
/// architectures, else InternalError (70). The message has the call, the error text of CUDA and the
/// advice.
[[noreturn]] void throw_fault(int error, char const* call, char const* name, char const* text);

/// @param built_for "80 90": SASS for each architecture and PTX for the last. SASS runs on devices
/// of the same major and the same or a higher minor compute capability; the driver compiles PTX for
/// any later device. "CUDA C++ Programming Guide", 3.1.2 and 3.1.3.
bool kernels_run_on(std::string_view built_for, int major, int minor);

/// @throws ConfigError naming the device, the architectures of the build and the option to set
void require_architecture(DeviceInfo const& device, std::string_view built_for);

}  // namespace tessera::memory::detail
