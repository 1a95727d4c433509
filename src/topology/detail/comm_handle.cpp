#include "detail/comm_handle.hpp"

#include <cstring>

namespace tessera::topology {

static_assert(sizeof(MPI_Comm) <= sizeof(void*), "CommHandle stores an MPI_Comm by value");

CommHandle to_handle(MPI_Comm comm) {
  CommHandle handle;
  std::memcpy(&handle.raw, &comm, sizeof comm);
  return handle;
}

MPI_Comm from_handle(CommHandle handle) {
  MPI_Comm comm = MPI_COMM_NULL;
  std::memcpy(&comm, &handle.raw, sizeof comm);
  return comm;
}

std::string broadcast_text(MPI_Comm comm, std::string text) {
  auto length = static_cast<long long>(text.size());
  MPI_Bcast(&length, 1, MPI_LONG_LONG, 0, comm);
  text.resize(static_cast<std::size_t>(length));
  MPI_Bcast(text.data(), static_cast<int>(length), MPI_CHAR, 0, comm);
  return text;
}

}  // namespace tessera::topology
