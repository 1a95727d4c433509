#include "tessera/kernels/device_settings.hpp"

#include "detail/attention_cudnn.hpp"

namespace tessera::kernels {
namespace {
DeviceSettings settings;
}

DeviceSettings const& device_settings() { return settings; }
void set_device_settings(DeviceSettings const& wanted) { settings = wanted; }

std::string attention_library() {
  return detail::cudnn_description().empty() ? "portable: cuDNN's is not in this build"
                                             : detail::cudnn_description() + " and portable";
}

}  // namespace tessera::kernels
