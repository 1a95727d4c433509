#pragma once
/// How many cores a rank's kernels may use. The decision is a value of plain facts; cores_of_rank()
/// of mpi_session.hpp collects them.

#include <vector>

namespace tessera::topology {

struct CoreFacts {
  std::vector<std::vector<int>> masks;  ///< of the node's ranks: the cores each may run on
  int rank = 0;                         ///< the one asked about, an index of masks
  int wanted = 0;                       ///< OMP_NUM_THREADS; 0: not given
  double quota = 0.0;  ///< cores' worth of time that this rank's control group allows; 0: no limit
  int quota_sharers = 1;  ///< ranks of the node in groups with a limit like that
};

/// What OMP_NUM_THREADS says; else each core of the rank's mask counts as 1 / (ranks that may run
/// on it), the sum rounded down, no more than its share of the control group's quota (rounded up),
/// at least 1.
int share_of_cores(CoreFacts const& facts);

/// The quota of this process's control groups (cpu.max, or cpu.cfs_quota_us / cpu.cfs_period_us) in
/// cores; 0: none.
double quota_of_control_groups();

}  // namespace tessera::topology
