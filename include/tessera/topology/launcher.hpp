#pragma once
/// What the program that started this process says about the job, read from environment variables.
/// MPI is the truth about ranks; these facts only check it, and tell what MPI does not know: job,
/// restarts, time limit.

#include <cstdint>
#include <map>
#include <optional>
#include <string>

#include "tessera/topology/mpi_session.hpp"

namespace tessera::topology {

using Environment = std::map<std::string, std::string, std::less<>>;
/// The environment of this process.
Environment process_environment();

enum class Launcher { none, mpirun, srun, hydra };

/// Facts of one process. `size`, `rank` ... are of the innermost launcher: mpirun inside a Slurm
/// job speaks for its ranks, while a program that a batch script starts directly has none, whatever
/// the job's SLURM_NTASKS says.
struct LauncherFacts {
  Launcher launcher = Launcher::none;
  std::optional<int> size, rank, local_rank, local_size;
  std::string pmi;     ///< srun's --mpi: "pmix", "pmi2", "none"; empty when unknown
  std::string job_id;  ///< of Slurm or PBS; empty outside a job
  std::string array_task;
  int restart_count = 0;                 ///< how often Slurm has put the job back into the queue
  std::optional<std::int64_t> end_time;  ///< SLURM_JOB_END_TIME, seconds since 1970
  bool slurm = false;                    ///< the job is Slurm's
  bool pmix = false;                     ///< the launcher offers PMIx
  bool unchecked = false;                ///< TESSERA_LAUNCHER_CHECK=0

  bool operator==(LauncherFacts const&) const = default;
};
LauncherFacts launcher_facts(Environment const& environment);

/// Whether another process of the job is the one to speak, as far as the launcher's variables tell
/// (before MPI has started).
bool is_replica(LauncherFacts const& facts);

/// Why launcher and MPI cannot both be right, with the remedy; empty when they agree or the
/// launcher says nothing. The case that matters: N processes which MPI started as N worlds of one
/// rank, each about to train alone in the same directory.
std::string disagreement(LauncherFacts const& facts, int mpi_size);

/// Why MPI_Init would end the process without a word about srun, known beforehand; empty when
/// nothing speaks against it. Open MPI finds its ranks through PMIx; one that was built for PMI-1
/// or PMI-2 is let through by TESSERA_LAUNCHER_CHECK=0.
std::string why_mpi_cannot_start(LauncherFacts const& facts, std::string const& mpi_library);

}  // namespace tessera::topology
