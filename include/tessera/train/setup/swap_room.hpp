#pragma once
/// Room for the swap files of all ranks of a node, looked for before the first one is made.

#include <string>
#include <vector>

#include "tessera/comm/base/collectives.hpp"
#include "tessera/topology/mpi_session.hpp"
#include "tessera/zero/engine/engine.hpp"

namespace tessera::train {

/// A file system with directories for swap files.
struct SwapRoom {
  memory::SwapDirectories directories;
  std::size_t optimizer = 0, weights = 0;  ///< bytes that one rank needs there
  std::size_t free = 0;
  std::size_t needed(int ranks) const {
    return static_cast<std::size_t>(ranks) * (optimizer + weights);
  }
};

/// Directories of one file system together; without those that cannot be examined.
/// @param memory of one rank
std::vector<SwapRoom> swap_rooms(zero::EngineConfig const& config,
                                 zero::MemoryReport const& memory);

/// The first file system without room for @p ranks, in the words of an error; empty: all have it.
std::string swap_shortage(std::vector<SwapRoom> const& rooms, int ranks, std::string const& host);

/// The kind of pass that decides which states a rank has, and where the model computes.
struct StatesOf {
  memory::Pass pass = memory::Pass::training;
  memory::MemorySpace space = memory::MemorySpace::host;
};

/// Logs what the ranks of a node need of each file system. No effect without swap files.
/// Collective.
/// @throws IoError on all ranks when a node has too little
void check_swap_room(zero::EngineConfig const& config, std::vector<memory::UnitSpec> const& units,
                     topology::RankInfo const& rank, comm::Collectives& comm, StatesOf states);

}  // namespace tessera::train
