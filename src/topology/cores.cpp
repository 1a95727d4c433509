#include <mpi.h>

#include <algorithm>
#include <array>
#include <bit>
#include <cstdint>
#include <cstdlib>
#include <cstring>

#include "tessera/core/affinity.hpp"
#include "tessera/topology/mpi_session.hpp"

namespace tessera::topology {
namespace {

/// Set of cores, up to 8192.
using Mask = std::array<std::uint64_t, 128>;

Mask own_mask() {
  Mask mask{};
  for (int const c : allowed_cores()) mask[static_cast<std::size_t>(c) / 64] |= std::uint64_t{1} << (c % 64);
  return mask;
}

int count(Mask const& mask) {
  int n = 0;
  for (auto const word : mask) n += std::popcount(word);
  return n;
}

/// First number of OMP_NUM_THREADS (a list when parallel regions nest); 0 when it says nothing.
int wanted_by_environment() {
  char const* const text = std::getenv("OMP_NUM_THREADS");
  return text ? std::max(0, std::atoi(text)) : 0;
}

}  // namespace

int cores_of_rank(MpiSession const& session) {
  MPI_Comm node = MPI_COMM_NULL;
  CommHandle const handle = session.node();
  std::memcpy(&node, &handle.raw, sizeof node);
  Mask const own = own_mask();
  std::vector<Mask> all(static_cast<std::size_t>(session.info().local_size));
  MPI_Allgather(own.data(), sizeof own, MPI_BYTE, all.data(), sizeof own, MPI_BYTE, node);
  if (int const wanted = wanted_by_environment(); wanted > 0) return wanted;
  auto const sharing = static_cast<int>(std::count(all.begin(), all.end(), own));
  return std::max(1, count(own) / sharing);
}

}  // namespace tessera::topology
