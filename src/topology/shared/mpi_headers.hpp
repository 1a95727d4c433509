#pragma once
/// The MPI that this build was compiled with, for programs that do not link it.

#include <string>

namespace tessera::topology {

/// "Open MPI v4.1.4", from MPI's header. MpiSession::library_version() is the version that is
/// loaded.
std::string mpi_version_of_headers();

}  // namespace tessera::topology
