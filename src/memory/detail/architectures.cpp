#include "detail/device_api.hpp"

#include <charconv>

#include "tessera/core/error.hpp"

namespace tessera::memory::detail {

bool kernels_run_on(std::string_view built_for, int major, int minor) {
  int newest = 0;
  for (char const *at = built_for.data(), *const end = at + built_for.size(); at < end; ++at) {
    int architecture = 0;
    auto const number = std::from_chars(at, end, architecture);
    if (number.ec != std::errc()) continue;
    if (architecture / 10 == major && architecture % 10 <= minor) return true;
    newest = architecture;
    at = number.ptr;
  }
  return newest > 0 && 10 * major + minor >= newest;
}

void require_architecture(DeviceInfo const& device, std::string_view built_for) {
  TESSERA_VALIDATE(kernels_run_on(built_for, device.major, device.minor), ConfigError, "device ",
                   device.ordinal, " (", device.name, ") has compute capability ", device.major,
                   ".", device.minor, ", and this build has kernels for architectures ", built_for,
                   "; configure with -DTESSERA_CUDA_ARCHITECTURES=", device.major, device.minor);
}

}  // namespace tessera::memory::detail
