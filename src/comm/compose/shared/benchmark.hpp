#pragma once
/// Times collective operations next to those of the MPI library, and checks their results.

#include <cstdint>
#include <memory>
#include <string>
#include <vector>

#include "tessera/comm/base/collectives.hpp"
#include "tessera/topology/mpi_session.hpp"

namespace tessera::comm {

struct BenchmarkOptions {
  std::vector<std::string> operations = {};  ///< names of benchmark_operations(); empty: all
  std::vector<std::string> groups = {};      ///< "world", "node", "rail", "shard:4"; empty: world
  std::size_t smallest = std::size_t{1} << 10, largest = std::size_t{256} << 20;  ///< bytes
  Dtype dtype = Dtype::fp32;
  int repetitions = 0;  ///< repetitions of each operation and size; 0: by size, from 5 to 101
};

/// Names of the operations that can be timed.
std::vector<std::string> const& benchmark_operations();

/// Result of one operation and size in the group of rank 0. Its times are those of the slowest rank
/// of the job.
struct BenchmarkRow {
  std::string operation, group;
  std::size_t bytes = 0;  ///< elements of all ranks times their size
  int ranks = 1;
  int repetitions = 0;
  double median_seconds = 0.0, least_seconds = 0.0;
  double mpi_median_seconds = 0.0;  ///< median seconds of the MPI library; 0: it was not timed
  std::int64_t wrong = 0;           ///< elements with a wrong result, on all ranks
};

/// Times each operation and size, smallest first. All groups of a kind work at the same time, as in
/// a run. Where operands are in host memory the MPI library's operation is timed in turns with
/// Tessera's. Every operation's result is checked once per size. Collective.
/// @param compute of the memory of the operands
/// @throws ConfigError for a group or an operation that does not exist; OutOfMemoryError
std::vector<BenchmarkRow> run_benchmark(topology::MpiSession const& session, Collectives& world,
                                        memory::Queue& compute, BenchmarkOptions const& options);

}  // namespace tessera::comm
