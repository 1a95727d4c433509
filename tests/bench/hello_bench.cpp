// Starts MPI and ends: what any MPI program pays. The baseline of start-up times.
#include "tessera/topology/mpi_session.hpp"

int main(int argc, char** argv) {
  tessera::topology::MpiSession session(argc, argv);
  return 0;
}
