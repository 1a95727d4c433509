#pragma once
/// The state of a Slurm job, from sacct, scontrol and the job's log file.

#include <cstdint>
#include <functional>
#include <optional>
#include <string>

#include "tessera/topology/launcher.hpp"

namespace tessera::cli {

struct JobRecord {
  std::string
      state;        ///< "OUT_OF_MEMORY", "TIMEOUT", "NODE_FAIL", "RUNNING" ...; empty when unknown
  std::string log;  ///< the job's log file; empty when unknown
  std::string evidence;  ///< the log line that says why Slurm or the kernel ended
                         ///< a process; empty: none
};

/// Asks sacct and scontrol about @p job, for at most 20 s. @param log  the job's log file; empty:
/// the path that scontrol prints
JobRecord read_job_record(std::string const& job, std::string const& log);

/// The job's state. A cause found in the log takes precedence over Slurm's state.
std::string state_of(JobRecord const& record);

/// The state in the output of `sacct -n -P -o State` or of `scontrol show job -o`: "CANCELLED by 0"
/// is CANCELLED.
std::string job_state_in(std::string const& text);
/// The file after StdOut= in the output of `scontrol show job -o`.
std::string log_file_in(std::string const& text);
/// The last line in which slurmstepd, srun or the kernel reports an out-of-memory kill, a time
/// limit, a preemption or a node failure.
std::string evidence_in(std::string const& log);

/// "EndTime=2026-01-31T12:00:00" of `scontrol show job`, local time, as seconds since 1970; nothing
/// for "Unknown" or "None".
std::optional<std::int64_t> end_time_in(std::string const& scontrol_text);

/// Start and walltime in the output of PBS's `qstat -f`, added; nothing when either is missing.
std::optional<std::int64_t> end_time_in_qstat(std::string const& qstat_text);

struct JobEnd {
  std::optional<std::int64_t> time;  ///< seconds since 1970
  std::string problem;               ///< a warning: why no time is obeyed
};
/// End of the job's time limit: SLURM_JOB_END_TIME, otherwise, and where that is before @p now
/// (seconds since 1970) because the limit was extended, what scontrol says; in a job of PBS what
/// qstat says. A time in the past is not obeyed: the variable is left from an earlier job.
/// @param ask  the output of `scontrol show job -o`, or of `qstat -f`, for a job
JobEnd job_end_time(topology::LauncherFacts const& facts, std::int64_t now,
                    std::function<std::string(std::string const& job)> const& ask);

/// `scontrol show job -o`, for at most 5 s. Call it on rank 0 only: thousands of calls overload
/// Slurm's controller.
std::string ask_scontrol(std::string const& job);
/// `qstat -f`, under the same conditions.
std::string ask_qstat(std::string const& job);

}  // namespace tessera::cli
