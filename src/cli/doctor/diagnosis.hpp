#pragma once
/// Why a run ended, and what to change: from its status.json and the batch system's record of the
/// job.

#include <string>
#include <vector>

#include "slurm/job_record.hpp"
#include "tessera/core/config_tree.hpp"

namespace tessera::cli {

struct Diagnosis {
  std::string what;                 ///< one sentence
  std::vector<std::string> advice;  ///< what to change, most likely first
  bool operator==(Diagnosis const&) const = default;
};

/// @param status  the run's status.json
/// @param living_owner  the process that holds the run directory, described; empty: none is alive
Diagnosis diagnose(ConfigTree const& status, JobRecord const& record,
                   std::string const& living_owner = "");

}  // namespace tessera::cli
