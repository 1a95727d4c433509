#pragma once
/// MPI communicators behind their opaque handles, and text over them.

#include <mpi.h>

#include <string>

#include "tessera/topology/mpi_session.hpp"

namespace tessera::topology {

CommHandle to_handle(MPI_Comm comm);
MPI_Comm from_handle(CommHandle handle);

/// Rank 0's text on every rank of @p comm. Collective.
std::string broadcast_text(MPI_Comm comm, std::string text);

}  // namespace tessera::topology
