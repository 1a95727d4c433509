#pragma once
/// A device made of host memory, for runs without a GPU: its memory is bounded, its streams are
/// host threads, and only copies move data between it and the host. Kernels run on the host's cores
/// in the order of their stream.

#include <cstddef>

namespace tessera::memory {

struct SimulatedDevice {
  std::size_t memory_bytes = 0;
  double link_bytes_per_second = 0.0;  ///< of copies in each direction; 0: as fast as memory
};

/// Makes it the device of this process until the process ends. Called before the Runtime is made.
void simulate_device(SimulatedDevice const& device);
/// Another speed of its link, for copies that start later.
void set_simulated_link(double bytes_per_second);
/// True after simulate_device().
bool device_is_simulated();

}  // namespace tessera::memory
