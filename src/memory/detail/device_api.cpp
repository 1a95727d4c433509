#include "detail/device_api.hpp"

#include <utility>

#include "detail/device_memory.hpp"
#include "tessera/core/error.hpp"

namespace tessera::memory::detail {
namespace {
DeviceApi* replacement = nullptr;
}  // namespace

DeviceApi* device_api_or_null() { return replacement ? replacement : cuda_api(); }

DeviceApi* replace_device_api(DeviceApi* api) {
  reset_device_memory();
  return std::exchange(replacement, api);
}

DeviceApi& device_api() {
  DeviceApi* const api = device_api_or_null();
  TESSERA_VALIDATE(api, ConfigError,
                   "a device was requested, but this build has no CUDA; configure with "
                   "TESSERA_ENABLE_CUDA=ON (cmake --preset cuda)");
  return *api;
}

}  // namespace tessera::memory::detail
