#pragma once
/// The CUDA runtime behind DeviceApi.

#include "detail/device_api.hpp"

namespace tessera::memory::detail {

/// Null in builds without CUDA.
DeviceApi* cuda_api();
/// CUDART_VERSION of this build, 13000 for 13.0; 0 without CUDA.
int cuda_api_version();
/// Multiprocessors of a device; 0 without CUDA.
int cuda_multiprocessors(int ordinal);

}  // namespace tessera::memory::detail
