#pragma once
/// How ranks of one node exchange data.

namespace tessera::comm {

/// automatic: shared memory when all ranks are on one node, else MPI calls.
enum class NodeTransport { automatic, mpi_only };

}  // namespace tessera::comm
