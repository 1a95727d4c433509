#include "tessera/kernels/launch/device_settings.hpp"

namespace tessera::kernels {
namespace {
DeviceSettings settings;
}

DeviceSettings const& device_settings() { return settings; }
void set_device_settings(DeviceSettings const& wanted) { settings = wanted; }

}  // namespace tessera::kernels
