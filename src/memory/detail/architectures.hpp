#pragma once
/// Which devices the kernels of a build run on.

#include <string_view>

#include "tessera/memory/device.hpp"

namespace tessera::memory::detail {

/// @p built_for: "80 90", machine code for each and PTX for the last. Machine code runs on devices
/// of the same major number and the same or a higher minor one; from PTX the driver makes code for
/// any later device. "CUDA C++ Programming Guide", 3.1.2 and 3.1.3.
bool kernels_run_on(std::string_view built_for, int major, int minor);

/// @throws ConfigError naming the device, what the build has and the option to set
void require_architecture(DeviceInfo const& device, std::string_view built_for);

}  // namespace tessera::memory::detail
