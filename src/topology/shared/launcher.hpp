#pragma once
/// Facts about the job from the launcher's environment variables. MPI is authoritative for ranks;
/// these facts check it, and add what MPI does not know: job id, restarts, time limit.

#include <cstdint>
#include <istream>
#include <map>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

#include "tessera/topology/mpi_session.hpp"

namespace tessera::topology {

using Environment = std::map<std::string, std::string, std::less<>>;
/// The environment of this process.
Environment process_environment();

/// `hydra` starts ranks of MPICH and of MPIs derived from it, `pals` those of Cray's MPICH in jobs
/// of PBS.
enum class Launcher { none, mpirun, srun, hydra, pals, flux, torchrun };

/// MPIs that start their ranks in the same way.
enum class MpiFamily { unknown, open_mpi, mpich };
/// The family that a text of MPI_Get_library_version or of `mpiexec --version` names.
MpiFamily mpi_family(std::string_view version);

/// Facts of one process. `size`, `rank` and the like are those of the innermost launcher: of mpirun
/// if it runs inside a Slurm job. A program that a batch script starts directly has none,
/// independent of the job's SLURM_NTASKS.
struct LauncherFacts {
  Launcher launcher = Launcher::none;
  std::optional<int> size, rank, local_rank, local_size;
  std::string size_variable;  ///< the variable that gives `size`
  /// What the job of the batch system was allocated, and the variables that say so: SLURM_NTASKS,
  /// else SLURM_NTASKS_PER_NODE times SLURM_JOB_NUM_NODES.
  std::optional<int> job_tasks, job_nodes;
  std::string job_tasks_variable;
  /// GPUs of a node that the environment names, and the variable: SLURM_GPUS_ON_NODE,
  /// SLURM_STEP_GPUS, SLURM_JOB_GPUS, or CUDA_VISIBLE_DEVICES. In a step of srun with
  /// SLURM_GPUS_PER_TASK the GPUs of a task.
  std::optional<int> gpus;
  std::string gpus_variable;
  std::string node_file;  ///< PBS_NODEFILE: one line per rank of the job
  std::string pmi;        ///< srun's --mpi: "pmix", "pmi2", "none"; empty when unknown
  std::string job_id;     ///< Slurm or PBS job id; empty outside a job
  std::string array_task;
  int restart_count = 0;                 ///< how often Slurm has requeued the job
  std::optional<std::int64_t> end_time;  ///< SLURM_JOB_END_TIME, seconds since 1970
  bool slurm = false;                    ///< inside a Slurm job
  bool pmix = false;                     ///< the launcher provides PMIx
  bool unchecked = false;                ///< TESSERA_LAUNCHER_CHECK=0

  bool operator==(LauncherFacts const&) const = default;
};
LauncherFacts launcher_facts(Environment const& environment);

/// Warnings about variables that must be numbers and are not: they are ignored.
std::vector<std::string> unreadable_variables(Environment const& environment);

/// The launcher for messages: "srun", "mpiexec of MPICH (Hydra)"; empty without one.
std::string launcher_name(Launcher launcher);

/// Whether another process of the job is rank 0 according to the launcher. For messages before
/// MPI_Init.
bool is_replica(LauncherFacts const& facts);

/// An error when launcher and MPI contradict each other; empty when they agree or the launcher sets
/// no variables. The important case: N processes, each an MPI world of one rank, would all train in
/// the same directory.
std::string disagreement(LauncherFacts const& facts, int mpi_size, std::string const& mpi_library);

/// The ranks listed in the file PBS_NODEFILE; nothing when it is empty or cannot be read.
std::optional<int> ranks_in_node_file(std::istream& file);

/// A warning when the job of the batch system has more tasks or nodes than this program has ranks:
/// a batch script that starts it without srun or mpirun trains on one rank. Otherwise empty.
/// @param nodes  nodes on which the ranks run
std::string unused_allocation(LauncherFacts const& facts, int world_size, int nodes);

/// A warning when a node has more or fewer GPUs than ranks, each of which computes on one; else
/// empty. CUDA_VISIBLE_DEVICES may differ between ranks, so that a short list is no problem.
std::string gpu_mismatch(LauncherFacts const& facts, int ranks_of_node);

/// An error when MPI_Init would not find the ranks without naming the cause; otherwise empty. Open
/// MPI finds them through PMIx. MPICH without PMIx, started with it, ends each process (5.0) or
/// starts worlds of one rank (4.0). TESSERA_LAUNCHER_CHECK=0 disables the check, for an Open MPI
/// built for PMI-1 or PMI-2.
std::string why_mpi_cannot_start(LauncherFacts const& facts, std::string const& mpi_library);

}  // namespace tessera::topology
