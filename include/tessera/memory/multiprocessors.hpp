#pragma once
/// The multiprocessors of a GPU.

namespace tessera::memory {

/// Opens no context on the device. 0 in a build without CUDA.
int multiprocessors_of_device(int ordinal);

}  // namespace tessera::memory
