#pragma once
/// The versions of the libraries that this process has loaded.

#include "tessera/core/config_tree.hpp"

namespace tessera::train {

/// build_versions() with the MPI and BLAS libraries that are loaded. Links both.
ConfigTree library_versions();

}  // namespace tessera::train
