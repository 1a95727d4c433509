#pragma once
/// Device architectures that the kernels of a build support.

#include <string_view>

#include "tessera/memory/device.hpp"

namespace tessera::memory::detail {

/// @param built_for "80 90": SASS for each architecture and PTX for the last. SASS runs on devices
/// of the same major and the same or a higher minor compute capability; the driver compiles PTX for
/// any later device. "CUDA C++ Programming Guide", 3.1.2 and 3.1.3.
bool kernels_run_on(std::string_view built_for, int major, int minor);

/// @throws ConfigError naming the device, the architectures of the build and the option to set
void require_architecture(DeviceInfo const& device, std::string_view built_for);

}  // namespace tessera::memory::detail
