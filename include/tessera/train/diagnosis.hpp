#pragma once
/// What happened to a run, and what to change: from its status.json and from what the batch system remembers of the job.

#include <string>
#include <vector>

#include "tessera/core/config_tree.hpp"

namespace tessera::train {

struct Diagnosis {
  std::string what;                 ///< one sentence
  std::vector<std::string> advice;  ///< what to change, most likely first
  bool operator==(Diagnosis const&) const = default;
};

/// @param status     the run's status.json
/// @param job_state  Slurm's state of the job ("OUT_OF_MEMORY", "TIMEOUT", "NODE_FAIL", "RUNNING" ...); empty when unknown
Diagnosis diagnose(ConfigTree const& status, std::string const& job_state);

/// Whether the run has said how it ended.
bool has_ended(ConfigTree const& status);

/// The state in the output of `sacct -n -P -o State` or of `scontrol show job -o`: "CANCELLED by 0" is CANCELLED.
std::string job_state_in(std::string const& text);

}  // namespace tessera::train
