#pragma once
#include "tessera/topology/mpi_session.hpp"

namespace tessera::test {
/// The MPI session that the main of this suite started.
topology::MpiSession& session();
}  // namespace tessera::test
