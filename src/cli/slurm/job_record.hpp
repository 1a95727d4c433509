#pragma once
/// What Slurm's commands (sacct, scontrol) and the log file tell about a job.

#include <cstdint>
#include <optional>
#include <string>

#include "tessera/topology/launcher.hpp"

namespace tessera::cli {

/// What the batch system remembers.
struct JobRecord {
  std::string
      state;        ///< "OUT_OF_MEMORY", "TIMEOUT", "NODE_FAIL", "RUNNING" ...; empty when unknown
  std::string log;  ///< the job's log file; empty when unknown
  std::string evidence;  ///< the line of the log that tells why Slurm or the kernel ended
                         ///< something; empty: none
};

/// The record of @p job by sacct and scontrol, at most 20 s. @param log the job's log file; empty:
/// the one that scontrol names
JobRecord read_job_record(std::string const& job, std::string const& log);

/// The job's state; a line of the log that names a cause counts more than Slurm's own state.
std::string state_of(JobRecord const& record);

/// The state in the output of `sacct -n -P -o State` or of `scontrol show job -o`: "CANCELLED by 0"
/// is CANCELLED.
std::string job_state_in(std::string const& text);
/// The file after StdOut= in the output of `scontrol show job -o`.
std::string log_file_in(std::string const& text);
/// The last line by which slurmstepd, srun or the kernel says that memory, time, preemption or a
/// node ended something.
std::string evidence_in(std::string const& log);

/// "EndTime=2026-01-31T12:00:00" of `scontrol show job`, local time, as seconds since 1970; nothing
/// for "Unknown" or "None".
std::optional<std::int64_t> end_time_in(std::string const& scontrol_text);

/// When the job's time limit ends it: from the environment, else one call of scontrol (at most 5
/// s). Call on one rank only.
std::optional<std::int64_t> job_end_time(topology::LauncherFacts const& facts);

}  // namespace tessera::cli
