#pragma once
/// `tessera run`: starts the ranks of a training, and starts them again after failures, on the
/// nodes that are left.

#include <string>
#include <vector>

#include "launch/launch_plan.hpp"

namespace tessera::cli {

struct RunRequest {
  LaunchRequest launch;                ///< the launcher; hosts and program are those of an attempt
  std::vector<HostSlots> nodes;        ///< the nodes of the allocation
  std::string program;                 ///< tessera-train
  std::vector<std::string> arguments;  ///< its arguments
  std::string slurm_job;               ///< empty outside Slurm
  bool simulated = false;              ///< nodes are parts of this machine
  int spares = 0, max_restarts = 3;
  double hang_timeout_seconds = 300.0;
  double exclude_stragglers = 0.0;  ///< nodes this many times slower are left out; 0: none
};

/// Returns the exit code of the run. @throws UsageError, ConfigError for what tessera-train would
/// refuse
int supervise(RunRequest const& request);

}  // namespace tessera::cli
