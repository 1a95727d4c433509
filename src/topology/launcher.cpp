#include "tessera/topology/launcher.hpp"

#include <algorithm>
#include <charconv>

#include "tessera/core/error.hpp"
#include "tessera/core/text.hpp"

extern char** environ;

namespace tessera::topology {
namespace {

std::string text_of(Environment const& environment, std::string_view name) {
  auto const found = environment.find(name);
  return found == environment.end() ? "" : found->second;
}

template <class Integer>
std::optional<Integer> number_of(Environment const& environment, std::string_view name) {
  std::string const text = text_of(environment, name);
  Integer value = 0;
  auto const [end, failure] = std::from_chars(text.data(), text.data() + text.size(), value);
  if (text.empty() || failure != std::errc() || end != text.data() + text.size())
    return std::nullopt;
  return value;
}

/// A launcher's variables. They count only where `marker` is set too; empty: always.
struct Variables {
  Launcher launcher;
  char const *size, *rank, *local_rank, *local_size;
  char const* marker = "";
};

/// Innermost first. For Slurm, the variables of a step: SLURM_NTASKS of a batch script counts tasks
/// that have not started. Inside a Slurm job Hydra starts one process per node by srun, whose
/// variables its ranks inherit. The plugins of srun and Flux for Cray's MPICH set PALS_RANKID too.
constexpr Variables variables_of[] = {
    {Launcher::mpirun, "OMPI_COMM_WORLD_SIZE", "OMPI_COMM_WORLD_RANK", "OMPI_COMM_WORLD_LOCAL_RANK",
     "OMPI_COMM_WORLD_LOCAL_SIZE"},
    {Launcher::hydra, "PMI_SIZE", "PMI_RANK", "MPI_LOCALRANKID", "MPI_LOCALNRANKS",
     "MPI_LOCALNRANKS"},
    {Launcher::flux, "FLUX_JOB_SIZE", "FLUX_TASK_RANK", "FLUX_TASK_LOCAL_ID", "", "FLUX_TASK_RANK"},
    {Launcher::srun, "SLURM_STEP_NUM_TASKS", "SLURM_PROCID", "SLURM_LOCALID", ""},
    {Launcher::pals, "PMI_SIZE", "PALS_RANKID", "PALS_LOCAL_RANKID", "PALS_LOCAL_SIZE",
     "PALS_RANKID"},
    {Launcher::hydra, "PMI_SIZE", "PMI_RANK", "MPI_LOCALRANKID", "MPI_LOCALNRANKS"},
    {Launcher::hydra, "MV2_COMM_WORLD_SIZE", "MV2_COMM_WORLD_RANK", "MV2_COMM_WORLD_LOCAL_RANK",
     "MV2_COMM_WORLD_LOCAL_SIZE"},
    {Launcher::torchrun, "WORLD_SIZE", "RANK", "LOCAL_RANK", "LOCAL_WORLD_SIZE",
     "TORCHELASTIC_RUN_ID"},
};

std::string srun_advice(MpiFamily family) {
  bool const mpich = family == MpiFamily::mpich;
  return concat("use `srun --mpi=", mpich ? "pmi2` (Cray's MPICH: --mpi=cray_shasta)" : "pmix`",
                " or the plugin in the machine's documentation (`srun --mpi=list` lists them), or ",
                mpich ? "mpiexec" : "mpirun", " inside the job");
}

std::string launcher_advice(MpiFamily family, std::string const& mpi_library) {
  return concat("Tessera's MPI is ", mpi_library, ", which another launcher starts: ",
                family == MpiFamily::open_mpi ? "mpirun of Open MPI"
                : family == MpiFamily::mpich  ? "mpiexec of MPICH (Debian: mpiexec.mpich)"
                                              : "the one in the documentation of that MPI");
}

constexpr char const* gpus_per_task = "SLURM_GPUS_PER_TASK";

/// Older Slurm does not set SLURM_NTASKS for --ntasks-per-node.
void find_allocation(Environment const& environment, LauncherFacts& facts) {
  facts.node_file = text_of(environment, "PBS_NODEFILE");
  if (!facts.slurm) return;
  facts.job_nodes = number_of<int>(environment, "SLURM_JOB_NUM_NODES");
  facts.job_tasks = number_of<int>(environment, "SLURM_NTASKS");
  facts.job_tasks_variable = "SLURM_NTASKS";
  auto const per_node = number_of<int>(environment, "SLURM_NTASKS_PER_NODE");
  if (facts.job_tasks || !per_node || !facts.job_nodes) return;
  facts.job_tasks = *per_node * *facts.job_nodes;
  facts.job_tasks_variable = "SLURM_NTASKS_PER_NODE and SLURM_JOB_NUM_NODES";
}

/// The count in "4", "a100:4" or "gpu:a100:4".
std::optional<int> count_of(Environment const& environment, char const* name) {
  std::string const text = text_of(environment, name);
  return number_of<int>({{name, text.substr(text.rfind(':') + 1)}}, name);
}

void find_gpus(Environment const& environment, LauncherFacts& facts) {
  auto const is_known = [&](char const* name, std::optional<int> count) {
    if (count.value_or(0) <= 0) return false;
    facts.gpus = count;
    facts.gpus_variable = name;
    return true;
  };
  auto const listed = [&](char const* name) -> std::optional<int> {
    std::string const text = text_of(environment, name);
    bool const is_list = text.starts_with("GPU-") || text.starts_with("MIG-") ||
                         text.find_first_of("0123456789") == 0;
    if (!is_list) return std::nullopt;  // -1 or NoDevFiles: none
    return static_cast<int>(std::count(text.begin(), text.end(), ',')) + 1;
  };
  if (facts.slurm) {
    bool const is_step = facts.launcher == Launcher::srun;
    if (is_step && is_known(gpus_per_task, count_of(environment, gpus_per_task))) return;
    if (is_known("SLURM_GPUS_ON_NODE", count_of(environment, "SLURM_GPUS_ON_NODE"))) return;
    for (char const* name : {"SLURM_STEP_GPUS", "SLURM_JOB_GPUS"})
      if (is_known(name, listed(name))) return;
  }
  is_known("CUDA_VISIBLE_DEVICES", listed("CUDA_VISIBLE_DEVICES"));
}

std::string start_advice(LauncherFacts const& facts) {
  return facts.slurm ? "start it with `srun tessera-train ...` (or mpirun) in the job script"
                     : "start it with `mpirun tessera-train ...` (or mpiexec) in the job script";
}

}  // namespace

Environment process_environment() {
  Environment environment;
  for (char** entry = environ; *entry; ++entry) {
    std::string const text = *entry;
    std::size_t const equals = text.find('=');
    if (equals != std::string::npos) environment[text.substr(0, equals)] = text.substr(equals + 1);
  }
  return environment;
}

LauncherFacts launcher_facts(Environment const& environment) {
  LauncherFacts facts;
  for (auto const& names : variables_of) {
    auto const size = number_of<int>(environment, names.size);
    if (!size || (*names.marker && !environment.contains(names.marker))) continue;
    facts.size_variable = names.size;
    facts.launcher = names.launcher;
    facts.size = size;
    facts.rank = number_of<int>(environment, names.rank);
    facts.local_rank = number_of<int>(environment, names.local_rank);
    facts.local_size = number_of<int>(environment, names.local_size);
    break;
  }
  facts.pmix = environment.contains("PMIX_RANK");
  facts.unchecked = text_of(environment, "TESSERA_LAUNCHER_CHECK") == "0";
  facts.pmi = text_of(environment, "SLURM_MPI_TYPE");
  facts.job_id = text_of(environment, "SLURM_JOB_ID");
  facts.slurm = !facts.job_id.empty();
  if (!facts.slurm) facts.job_id = text_of(environment, "PBS_JOBID");
  facts.array_task = text_of(environment, "SLURM_ARRAY_TASK_ID");
  facts.restart_count = number_of<int>(environment, "SLURM_RESTART_COUNT").value_or(0);
  facts.end_time = number_of<std::int64_t>(environment, "SLURM_JOB_END_TIME");
  find_allocation(environment, facts);
  find_gpus(environment, facts);
  return facts;
}

MpiFamily mpi_family(std::string_view version) {
  auto const names = [&](std::string_view word) {
    return version.find(word) != std::string_view::npos;
  };
  if (names("Open MPI") || names("OpenRTE")) return MpiFamily::open_mpi;
  bool const mpich = names("MPICH") || names("HYDRA") || names("Intel(R) MPI") ||
                     names("MVAPICH") || names("PALS");
  return mpich ? MpiFamily::mpich : MpiFamily::unknown;
}

std::string launcher_name(Launcher launcher) {
  switch (launcher) {
    case Launcher::mpirun:
      return "mpirun of Open MPI";
    case Launcher::srun:
      return "srun";
    case Launcher::hydra:
      return "mpiexec of MPICH (Hydra)";
    case Launcher::pals:
      return "mpiexec of PALS";
    case Launcher::flux:
      return "flux run";
    case Launcher::torchrun:
      return "torchrun";
    case Launcher::none:
      break;
  }
  return "";
}

std::vector<std::string> unreadable_variables(Environment const& environment) {
  std::vector<std::string> warnings;
  for (char const* name :
       {"OMP_NUM_THREADS", "OMPI_COMM_WORLD_SIZE", "PMI_SIZE", "SLURM_STEP_NUM_TASKS",
        "SLURM_NTASKS", "SLURM_NTASKS_PER_NODE", "SLURM_JOB_NUM_NODES", "SLURM_JOB_END_TIME"}) {
    auto found = environment.find(name);
    if (found == environment.end() || found->second.empty()) continue;
    // OMP_NUM_THREADS may be a list, for nested parallel regions
    Environment const first{{name, found->second.substr(0, found->second.find(','))}};
    if (number_of<std::int64_t>(first, name).value_or(0) > 0) continue;
    warnings.push_back(concat(name, "=", printable(found->second),
                              " is not a positive number; it is ignored, set or unset it"));
  }
  return warnings;
}

bool is_replica(LauncherFacts const& facts) { return facts.rank.value_or(0) != 0; }

std::string why_mpi_cannot_start(LauncherFacts const& facts, std::string const& mpi_library) {
  if (facts.unchecked) return "";
  auto const family = mpi_family(mpi_library);
  bool const by_srun = facts.launcher == Launcher::srun;
  if (family == MpiFamily::open_mpi && by_srun && !facts.pmix)
    return concat("srun started this program without PMIx",
                  facts.pmi.empty() ? "" : concat(" (--mpi=", facts.pmi, ")"), ", which ",
                  mpi_library, " needs to find its ranks; ", srun_advice(family),
                  " (for an Open MPI built for PMI-2, set TESSERA_LAUNCHER_CHECK=0)");
  bool const lacks_pmix = mpi_library.starts_with("MPICH ") && !mpi_library.ends_with(" with PMIx");
  if (lacks_pmix && facts.pmix && (by_srun || facts.launcher == Launcher::mpirun) &&
      facts.size.value_or(1) > 1)
    return concat(launcher_name(facts.launcher), " started ", *facts.size, " processes (",
                  facts.size_variable, "=", *facts.size, ") with PMIx, for which this ",
                  mpi_library, " is not built; ",
                  by_srun ? srun_advice(family) : launcher_advice(family, mpi_library),
                  " (TESSERA_LAUNCHER_CHECK=0 disables this check)");
  return "";
}

std::string disagreement(LauncherFacts const& facts, int mpi_size, std::string const& mpi_library) {
  auto const family = mpi_family(mpi_library);
  if (mpi_size != 1 || facts.size.value_or(1) == 1 || facts.unchecked) return "";
  if (facts.launcher == Launcher::torchrun)
    return concat("torchrun started ", *facts.size, " processes (", facts.size_variable, "=",
                  *facts.size,
                  "), but ranks come from MPI: each process would train separately in the same "
                  "directory; use `mpirun -np ",
                  *facts.size, " tessera-train ...` or srun");
  return concat(
      launcher_name(facts.launcher), " started ", *facts.size, " processes (", facts.size_variable,
      "=", *facts.size,
      "), but MPI reports one rank: each process would train separately in the "
      "same directory; ",
      facts.launcher == Launcher::srun ? srun_advice(family) : launcher_advice(family, mpi_library),
      "; if the variable is left from another job, unset it");
}

std::optional<int> ranks_in_node_file(std::istream& file) {
  int ranks = 0;
  for (std::string host; file >> host;) ++ranks;
  return ranks > 0 ? std::optional<int>(ranks) : std::nullopt;
}

std::string unused_allocation(LauncherFacts const& facts, int world_size, int nodes) {
  int const tasks = facts.job_tasks.value_or(1), job_nodes = facts.job_nodes.value_or(1);
  if (tasks > world_size)
    return concat("the job has ", tasks, " tasks (", facts.job_tasks_variable,
                  "), but this program runs on ", world_size, world_size == 1 ? " rank" : " ranks",
                  ": the others are idle and the global batch is smaller than meant; ",
                  start_advice(facts));
  if (job_nodes > nodes && facts.launcher != Launcher::srun)
    return concat("the job has ", job_nodes,
                  " nodes (SLURM_JOB_NUM_NODES), but the ranks of this "
                  "program run on ",
                  nodes, ": the others are idle; ", start_advice(facts));
  return "";
}

std::string gpu_mismatch(LauncherFacts const& facts, int ranks_of_node) {
  if (!facts.gpus) return "";
  bool const per_task = facts.gpus_variable == gpus_per_task;
  int const gpus = *facts.gpus, ranks = per_task ? 1 : ranks_of_node;
  bool const may_be_less = facts.gpus_variable == "CUDA_VISIBLE_DEVICES";
  if (gpus == ranks || (gpus < ranks && may_be_less)) return "";
  std::string const found =
      per_task ? concat("a task has ", gpus, " GPUs (", facts.gpus_variable, ")")
               : concat("a node has ", gpus, gpus == 1 ? " GPU (" : " GPUs (", facts.gpus_variable,
                        ") and ", ranks, ranks == 1 ? " rank" : " ranks", " of this program");
  if (gpus > ranks)
    return concat(found, ", and a rank computes on one GPU: ", gpus - ranks,
                  gpus - ranks == 1 ? " is idle; " : " are idle; ",
                  per_task ? concat("request one GPU per task and ", gpus, " times as many tasks")
                           : concat("start ", gpus, " ranks per node, or request fewer GPUs"));
  return concat(found, ": ranks share GPUs; start ", gpus, gpus == 1 ? " rank" : " ranks",
                " per node, or request more GPUs");
}

}  // namespace tessera::topology
