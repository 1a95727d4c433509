#pragma once
/// What `tessera bench-comm` measured, as a table, as JSON and as a picture.

#include <string>
#include <vector>

#include "tessera/comm/compose/benchmark.hpp"
#include "tessera/core/config_tree.hpp"

namespace tessera::cli {

/// Where a measurement ran.
struct CommSetting {
  int ranks = 1, nodes = 1;
  std::string host;         ///< host of rank 0
  std::string memory;       ///< "host memory" or the device
  std::string collectives;  ///< the choice of levels: auto, flat, two-level
  std::string mpi;          ///< "Open MPI 4.1.4"
  std::string dtype;
};

std::string comm_table(CommSetting const& setting, std::vector<comm::BenchmarkRow> const& rows);

ConfigTree comm_json(CommSetting const& setting, std::vector<comm::BenchmarkRow> const& rows);

/// A self-contained SVG: the bus bandwidth by message size, one panel per operation, one line per
/// group, dashed for the MPI library.
std::string draw_comm(CommSetting const& setting, std::vector<comm::BenchmarkRow> const& rows);

}  // namespace tessera::cli
