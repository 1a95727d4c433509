// The device space of Kokkos on a stream of CUDA. Another accelerator has a file like this one.
#include "launch/launch.hpp"

#ifdef KOKKOS_ENABLE_CUDA
#include <map>
#include <mutex>

namespace tessera::kernels::detail {

DeviceSpace const& device_space(void* native_stream) {
  static std::mutex mutex;
  static std::map<void*, DeviceSpace> spaces;
  std::lock_guard const lock(mutex);
  auto const found = spaces.find(native_stream);
  if (found != spaces.end()) return found->second;
  if (spaces.empty()) Kokkos::push_finalize_hook([] { spaces.clear(); });
  auto const& space =
      spaces.emplace(native_stream, DeviceSpace(static_cast<cudaStream_t>(native_stream)))
          .first->second;
  // Kokkos asks for scratch memory of the teams at every launch that uses none, as long as it has
  // none
  space.impl_internal_space_instance()->resize_team_scratch_space(0, 256);
  return space;
}

}  // namespace tessera::kernels::detail
#endif
