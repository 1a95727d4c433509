#pragma once
/// What a program was built from and with.

#include <string>

#include "tessera/core/config_tree.hpp"

namespace tessera::train {

/// {"tessera": "0.1.0", "commit": ..., "compiler": ..., "mpi": ..., "hdf5": ..., "kokkos": ...,
/// "blas": ..., "device": "absent", ...}; MPI and BLAS as this build was compiled with. Programs
/// that use this function do not link the two.
ConfigTree build_versions();
/// The day of the source: of its commit, or SOURCE_DATE_EPOCH; "2026-01-31".
std::string source_date();
/// Returns the versions as lines for --version.
std::string version_text(std::string const& program, ConfigTree const& versions);

/// build_versions() with the MPI and BLAS libraries that are loaded. Links both.
ConfigTree library_versions();

}  // namespace tessera::train
