#pragma once
/// What happened to a run, and what to change: from its status.json and from what the batch system
/// remembers of the job.

#include <string>
#include <vector>

#include "tessera/core/config_tree.hpp"

namespace tessera::train {

struct Diagnosis {
  std::string what;                 ///< one sentence
  std::vector<std::string> advice;  ///< what to change, most likely first
  bool operator==(Diagnosis const&) const = default;
};

/// What the batch system remembers.
struct JobRecord {
  std::string
      state;        ///< "OUT_OF_MEMORY", "TIMEOUT", "NODE_FAIL", "RUNNING" ...; empty when unknown
  std::string log;  ///< the job's log file; empty when unknown
  std::string evidence;  ///< the line of the log that tells why Slurm or the kernel ended
                         ///< something; empty: none
};

/// @param status  the run's status.json
Diagnosis diagnose(ConfigTree const& status, JobRecord const& record);

/// Whether the run has said how it ended.
bool has_ended(ConfigTree const& status);

/// The state in the output of `sacct -n -P -o State` or of `scontrol show job -o`: "CANCELLED by 0"
/// is CANCELLED.
std::string job_state_in(std::string const& text);
/// The file after StdOut= in the output of `scontrol show job -o`.
std::string log_file_in(std::string const& text);
/// The last line by which slurmstepd, srun or the kernel says that memory, time, preemption or a
/// node ended something.
std::string evidence_in(std::string const& log);

}  // namespace tessera::train
