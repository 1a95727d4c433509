#include "tessera/topology/mpi_headers.hpp"

#include <mpi.h>

#include "tessera/core/error.hpp"

namespace tessera::topology {

std::string mpi_version_of_headers() {
#if defined(OMPI_MAJOR_VERSION)
  return concat("Open MPI v", OMPI_MAJOR_VERSION, ".", OMPI_MINOR_VERSION, ".",
                OMPI_RELEASE_VERSION);
#elif defined(MPICH_VERSION)
  return concat("MPICH ", MPICH_VERSION);
#else
  return concat("MPI ", MPI_VERSION, ".", MPI_SUBVERSION);
#endif
}

}  // namespace tessera::topology
