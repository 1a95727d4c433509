#pragma once
/// The version of the HDF5 library.

#include <string>

namespace tessera::checkpoint {

/// "1.10.8" of the HDF5 library that is loaded, for --version.
std::string hdf5_version();

}  // namespace tessera::checkpoint
