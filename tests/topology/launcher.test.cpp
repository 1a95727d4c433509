#include "tessera/topology/launcher.hpp"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <sstream>

namespace tessera::topology {
namespace {

using testing::HasSubstr;

constexpr char const* open_mpi = "Open MPI v4.1.4";

TEST(LauncherFacts, NothingIsSaidOutsideAJob) {
  auto const facts = launcher_facts({});
  EXPECT_EQ(facts, LauncherFacts{});
  EXPECT_EQ(disagreement(facts, 1, open_mpi), "");
  EXPECT_FALSE(is_replica(facts));
}

TEST(LauncherFacts, AStepOfSrun) {
  auto const facts = launcher_facts({{"SLURM_JOB_ID", "17"},
                                     {"SLURM_STEP_NUM_TASKS", "4"},
                                     {"SLURM_PROCID", "3"},
                                     {"SLURM_LOCALID", "1"},
                                     {"SLURM_MPI_TYPE", "pmix"},
                                     {"SLURM_RESTART_COUNT", "2"},
                                     {"SLURM_JOB_END_TIME", "1767225600"}});
  EXPECT_EQ(facts.launcher, Launcher::srun);
  EXPECT_EQ(facts.size, 4);
  EXPECT_EQ(facts.rank, 3);
  EXPECT_EQ(facts.local_rank, 1);
  EXPECT_EQ(facts.job_id, "17");
  EXPECT_EQ(facts.restart_count, 2);
  EXPECT_EQ(facts.end_time, 1767225600);
  EXPECT_TRUE(is_replica(facts));
  EXPECT_EQ(disagreement(facts, 4, open_mpi), "");
}

TEST(LauncherFacts, ABatchScriptHasNotStartedItsTasks) {
  auto const facts =
      launcher_facts({{"SLURM_JOB_ID", "17"}, {"SLURM_NTASKS", "4"}, {"SLURM_PROCID", "0"}});
  EXPECT_EQ(facts.launcher, Launcher::none);
  EXPECT_EQ(disagreement(facts, 1, open_mpi), "");
}

TEST(LauncherFacts, AJobWithMoreTasksThanRanksIsNamed) {
  auto const script = launcher_facts({{"SLURM_JOB_ID", "17"}, {"SLURM_NTASKS", "8"}});
  for (char const* part : {"8 tasks (SLURM_NTASKS)", "on 1 rank:", "srun tessera-train"})
    EXPECT_THAT(unused_allocation(script, 1, 1), HasSubstr(part));
  EXPECT_THAT(unused_allocation(script, 4, 1), HasSubstr("on 4 ranks"));
  EXPECT_EQ(unused_allocation(script, 8, 1), "");
  EXPECT_EQ(unused_allocation(script, 16, 1), "") << "more ranks than tasks are wanted so";
  auto const per_node = launcher_facts(
      {{"SLURM_JOB_ID", "17"}, {"SLURM_NTASKS_PER_NODE", "4"}, {"SLURM_JOB_NUM_NODES", "2"}});
  EXPECT_THAT(unused_allocation(per_node, 1, 1), HasSubstr("8 tasks (SLURM_NTASKS_PER_NODE"));
  auto const nodes = launcher_facts({{"SLURM_JOB_ID", "17"}, {"SLURM_JOB_NUM_NODES", "2"}});
  EXPECT_THAT(unused_allocation(nodes, 4, 1), HasSubstr("2 nodes"));
  EXPECT_EQ(unused_allocation(nodes, 4, 2), "");
  EXPECT_EQ(unused_allocation(launcher_facts({{"SLURM_NTASKS", "8"}}), 1, 1), "") << "no job";
}

TEST(LauncherFacts, GpusThatAreIdleOrSharedAreNamed) {
  auto const with = [](Environment environment) {
    environment.emplace("SLURM_JOB_ID", "17");
    return launcher_facts(environment);
  };
  auto const node = with({{"SLURM_GPUS_ON_NODE", "4"}, {"CUDA_VISIBLE_DEVICES", "0"}});
  EXPECT_EQ(gpu_mismatch(node, 1),
            "a node has 4 GPUs (SLURM_GPUS_ON_NODE) and 1 rank of this program, and a rank "
            "computes on one GPU: 3 are idle; start 4 ranks per node, or request fewer GPUs");
  EXPECT_THAT(gpu_mismatch(node, 3), HasSubstr("1 is idle"));
  EXPECT_EQ(gpu_mismatch(node, 4), "");
  EXPECT_EQ(gpu_mismatch(node, 8),
            "a node has 4 GPUs (SLURM_GPUS_ON_NODE) and 8 ranks of this program: ranks share "
            "GPUs; start 4 ranks per node, or request more GPUs");

  Environment step{{"SLURM_STEP_NUM_TASKS", "2"},
                   {"SLURM_GPUS_PER_TASK", "a100:1"},
                   {"SLURM_GPUS_ON_NODE", "4"}};
  EXPECT_EQ(gpu_mismatch(with(step), 2), "") << "the other GPUs belong to other steps";
  step["SLURM_GPUS_PER_TASK"] = "4";
  EXPECT_THAT(gpu_mismatch(with(step), 2), HasSubstr("a task has 4 GPUs (SLURM_GPUS_PER_TASK)"));
  EXPECT_THAT(gpu_mismatch(with(step), 2), HasSubstr("3 are idle; request one GPU per task"));
  step["OMPI_COMM_WORLD_SIZE"] = "4";
  EXPECT_EQ(gpu_mismatch(with(step), 4), "") << "mpirun's ranks share the task's GPUs";

  EXPECT_THAT(gpu_mismatch(with({{"SLURM_JOB_GPUS", "0,1"}}), 1), HasSubstr("(SLURM_JOB_GPUS)"));
  EXPECT_THAT(gpu_mismatch(with({{"SLURM_STEP_GPUS", "0,1"}, {"SLURM_JOB_GPUS", "0,1,2"}}), 1),
              HasSubstr("2 GPUs (SLURM_STEP_GPUS)"));
  auto const visible = launcher_facts({{"CUDA_VISIBLE_DEVICES", "0,3"}});
  EXPECT_THAT(gpu_mismatch(visible, 1), HasSubstr("1 is idle"));
  EXPECT_EQ(gpu_mismatch(visible, 4), "") << "each rank may have a list of its own";
  EXPECT_EQ(gpu_mismatch(launcher_facts({{"SLURM_GPUS_ON_NODE", "4"}}), 1), "") << "no job";
  for (char const* none : {"", "0", "none"})
    EXPECT_EQ(gpu_mismatch(with({{"SLURM_GPUS_ON_NODE", none}}), 2), "") << none;
  for (char const* none : {"", "-1", "NoDevFiles"})
    EXPECT_EQ(launcher_facts({{"CUDA_VISIBLE_DEVICES", none}}).gpus, std::nullopt) << none;
  EXPECT_EQ(gpu_mismatch(launcher_facts({}), 1), "");
}

TEST(LauncherFacts, AStepOfOneNodeInALargerJobIsWanted) {
  auto const step = launcher_facts({{"SLURM_JOB_ID", "17"},
                                    {"SLURM_STEP_NUM_TASKS", "4"},
                                    {"SLURM_NTASKS", "4"},
                                    {"SLURM_PROCID", "0"},
                                    {"SLURM_JOB_NUM_NODES", "2"}});
  EXPECT_EQ(unused_allocation(step, 4, 1), "");
}

TEST(LauncherFacts, ANodeFileOfPbsCountsRanks) {
  auto facts = launcher_facts({{"PBS_JOBID", "17.head"}, {"PBS_NODEFILE", "/var/spool/aux/17"}});
  EXPECT_EQ(facts.node_file, "/var/spool/aux/17");
  std::istringstream lines("n1\nn1\nn2\nn2\n"), empty("\n");
  facts.job_tasks = ranks_in_node_file(lines);
  facts.job_tasks_variable = "PBS_NODEFILE";
  EXPECT_THAT(unused_allocation(facts, 1, 1), HasSubstr("4 tasks (PBS_NODEFILE)"));
  EXPECT_THAT(unused_allocation(facts, 1, 1), HasSubstr("start it with `mpirun"));
  EXPECT_EQ(ranks_in_node_file(empty), std::nullopt);
}

TEST(LauncherFacts, TorchrunStartsNoRanks) {
  Environment environment = {{"WORLD_SIZE", "8"}, {"RANK", "1"}, {"LOCAL_RANK", "1"}};
  EXPECT_EQ(launcher_facts(environment), LauncherFacts{}) << "exported for other programs";
  environment["TORCHELASTIC_RUN_ID"] = "none";
  auto const facts = launcher_facts(environment);
  EXPECT_TRUE(is_replica(facts));
  EXPECT_THAT(disagreement(facts, 1, open_mpi), HasSubstr("torchrun started 8 processes"));
  EXPECT_THAT(disagreement(facts, 1, open_mpi), HasSubstr("mpirun -np 8"));
}

TEST(LauncherFacts, MpirunInsideAJobSpeaksForItsRanks) {
  auto const facts = launcher_facts({{"SLURM_JOB_ID", "17"},
                                     {"SLURM_STEP_NUM_TASKS", "2"},
                                     {"SLURM_PROCID", "0"},
                                     {"OMPI_COMM_WORLD_SIZE", "1"},
                                     {"OMPI_COMM_WORLD_RANK", "0"}});
  EXPECT_EQ(facts.launcher, Launcher::mpirun);
  EXPECT_EQ(disagreement(facts, 1, open_mpi), "");
}

TEST(LauncherFacts, WorldsOfOneRankAreRecognized) {
  LauncherFacts const srun = launcher_facts(
      {{"SLURM_JOB_ID", "17"}, {"SLURM_STEP_NUM_TASKS", "4"}, {"SLURM_PROCID", "1"}});
  EXPECT_THAT(disagreement(srun, 1, open_mpi), HasSubstr("srun started 4 processes"));
  EXPECT_THAT(disagreement(srun, 1, open_mpi), HasSubstr("--mpi=pmix"));
  EXPECT_THAT(disagreement(srun, 1, "MPICH 4.0.2"), HasSubstr("--mpi=pmi2"));
  EXPECT_EQ(disagreement(srun, 4, "MPICH 4.0.2"), "");
  LauncherFacts const hydra = launcher_facts({{"PMI_SIZE", "8"}, {"PMI_RANK", "0"}});
  for (char const* part :
       {"mpiexec of MPICH (Hydra) started 8", "PMI_SIZE=8", "unset it",
        "Tessera's MPI is Open MPI v4.1.4, which another launcher starts: mpirun"})
    EXPECT_THAT(disagreement(hydra, 1, open_mpi), HasSubstr(part));
  auto const mpirun = launcher_facts({{"OMPI_COMM_WORLD_SIZE", "2"}});
  for (char const* part : {"mpirun of Open MPI started 2", "mpiexec of MPICH"})
    EXPECT_THAT(disagreement(mpirun, 1, "MPICH 4.0.2"), HasSubstr(part));
  EXPECT_EQ(
      disagreement(
          launcher_facts({{"PMI_SIZE", "8"}, {"PMI_RANK", "0"}, {"TESSERA_LAUNCHER_CHECK", "0"}}),
          1, open_mpi),
      "");
}

TEST(LauncherFacts, RanksOfHydraAreItsOwnInsideAJob) {
  // recorded under mpiexec.mpich 4.0.2 in a Slurm job: srun has started Hydra's proxy, one per node
  auto const facts = launcher_facts({{"SLURM_JOB_ID", "17"},
                                     {"SLURM_STEP_NUM_TASKS", "2"},
                                     {"SLURM_PROCID", "1"},
                                     {"SLURM_LOCALID", "0"},
                                     {"PMI_FD", "6"},
                                     {"PMI_SIZE", "4"},
                                     {"PMI_RANK", "2"},
                                     {"MPI_LOCALNRANKS", "2"},
                                     {"MPI_LOCALRANKID", "0"}});
  EXPECT_EQ(facts.launcher, Launcher::hydra);
  EXPECT_EQ(facts.size, 4);
  EXPECT_EQ(facts.rank, 2);
  EXPECT_EQ(facts.local_size, 2);
  EXPECT_EQ(facts.job_id, "17");
}

TEST(LauncherFacts, ARankOfPals) {
  // the names in job scripts for Polaris and Aurora (PBS, mpiexec of PALS)
  auto const facts = launcher_facts({{"PBS_JOBID", "4711.polaris-pbs-01"},
                                     {"PALS_APID", "0b1c"},
                                     {"PALS_NODEID", "1"},
                                     {"PALS_RANKID", "5"},
                                     {"PALS_LOCAL_RANKID", "1"},
                                     {"PALS_LOCAL_SIZE", "4"},
                                     {"PMI_SIZE", "8"},
                                     {"PMI_RANK", "5"},
                                     {"PMI_LOCAL_RANK", "1"},
                                     {"PMI_LOCAL_SIZE", "4"}});
  EXPECT_EQ(facts.launcher, Launcher::pals);
  EXPECT_EQ(facts.size, 8);
  EXPECT_EQ(facts.rank, 5);
  EXPECT_EQ(facts.local_rank, 1);
  EXPECT_EQ(facts.local_size, 4);
  EXPECT_EQ(facts.job_id, "4711.polaris-pbs-01");
  EXPECT_TRUE(is_replica(facts));
  EXPECT_THAT(disagreement(facts, 1, open_mpi), HasSubstr("mpiexec of PALS started 8 processes"));
  EXPECT_EQ(disagreement(facts, 8, "MPI VERSION    : CRAY MPICH version 8.1.28.29"), "");
}

TEST(LauncherFacts, AStepForCraysMpichIsOfSrun) {
  auto const facts = launcher_facts({{"SLURM_JOB_ID", "17"},
                                     {"SLURM_STEP_NUM_TASKS", "8"},
                                     {"SLURM_PROCID", "3"},
                                     {"SLURM_MPI_TYPE", "cray_shasta"},
                                     {"PALS_RANKID", "3"},
                                     {"PMI_SIZE", "8"}});
  EXPECT_EQ(facts.launcher, Launcher::srun);
  EXPECT_EQ(facts.rank, 3);
  EXPECT_EQ(why_mpi_cannot_start(facts, "CRAY MPICH version 8.1.28"), "");
}

TEST(LauncherFacts, ATaskOfFlux) {
  // FLUX_JOB_SIZE counts the tasks of the job; a Flux instance is often itself a step of Slurm
  auto const facts = launcher_facts({{"SLURM_JOB_ID", "17"},
                                     {"SLURM_STEP_NUM_TASKS", "2"},
                                     {"SLURM_PROCID", "1"},
                                     {"FLUX_JOB_SIZE", "16"},
                                     {"FLUX_JOB_NNODES", "2"},
                                     {"FLUX_TASK_RANK", "9"},
                                     {"FLUX_TASK_LOCAL_ID", "1"},
                                     {"PMI_SIZE", "16"},
                                     {"PMI_RANK", "9"}});
  EXPECT_EQ(facts.launcher, Launcher::flux);
  EXPECT_EQ(facts.size, 16);
  EXPECT_EQ(facts.rank, 9);
  EXPECT_EQ(facts.local_rank, 1);
  EXPECT_THAT(disagreement(facts, 1, open_mpi), HasSubstr("flux run started 16 processes"));
}

TEST(MpiFamily, IsReadFromVersionsOfLibrariesAndLaunchers) {
  for (char const* text : {"Open MPI v4.1.4", "mpirun (Open MPI) 5.0.3", "mpiexec (OpenRTE) 4.1.4"})
    EXPECT_EQ(mpi_family(text), MpiFamily::open_mpi) << text;
  for (char const* text :
       {"MPICH 4.0.2", "HYDRA build details:", "PALS 1.8.0",
        "MPI VERSION    : CRAY MPICH version 8.1.28.29",
        "Intel(R) MPI Library 2021.11 for Linux* OS", "MVAPICH2 Version      :	2.3.7"})
    EXPECT_EQ(mpi_family(text), MpiFamily::mpich) << text;
  EXPECT_EQ(mpi_family("slurm 22.05.8"), MpiFamily::unknown);
}

TEST(LauncherFacts, OpenMpiNeedsPmix) {
  Environment step = {{"SLURM_JOB_ID", "17"},
                      {"SLURM_STEP_NUM_TASKS", "4"},
                      {"SLURM_PROCID", "1"},
                      {"SLURM_MPI_TYPE", "none"}};
  EXPECT_THAT(why_mpi_cannot_start(launcher_facts(step), "Open MPI v4.1.4"),
              HasSubstr("--mpi=none"));
  EXPECT_THAT(why_mpi_cannot_start(launcher_facts(step), "Open MPI v4.1.4"),
              HasSubstr("--mpi=pmix"));
  EXPECT_EQ(why_mpi_cannot_start(launcher_facts(step), "MPICH 4.0"), "");
  step["PMIX_RANK"] = "1";
  EXPECT_EQ(why_mpi_cannot_start(launcher_facts(step), "Open MPI v4.1.4"), "");
  step.erase("PMIX_RANK");
  step["TESSERA_LAUNCHER_CHECK"] = "0";
  EXPECT_EQ(why_mpi_cannot_start(launcher_facts(step), "Open MPI v4.1.4"), "");
  EXPECT_EQ(why_mpi_cannot_start(launcher_facts({}), "Open MPI v4.1.4"), "");
}

TEST(LauncherFacts, MpichNeedsToKnowPmixWhereItIsStartedWithIt) {
  Environment mpirun = {
      {"OMPI_COMM_WORLD_SIZE", "3"}, {"OMPI_COMM_WORLD_RANK", "1"}, {"PMIX_RANK", "1"}};
  auto const why = why_mpi_cannot_start(launcher_facts(mpirun), "MPICH 5.0.2");
  for (char const* part : {"mpirun of Open MPI started 3 processes (OMPI_COMM_WORLD_SIZE=3)",
                           "with PMIx, for which this MPICH 5.0.2 is not built", "mpiexec of MPICH",
                           "TESSERA_LAUNCHER_CHECK=0"})
    EXPECT_THAT(why, HasSubstr(part));
  EXPECT_EQ(why_mpi_cannot_start(launcher_facts(mpirun), "MPICH 5.0.2 with PMIx"), "");
  EXPECT_EQ(why_mpi_cannot_start(launcher_facts(mpirun), "Open MPI v4.1.4"), "");
  Environment step = {{"SLURM_JOB_ID", "17"}, {"SLURM_STEP_NUM_TASKS", "4"}, {"PMIX_RANK", "0"}};
  EXPECT_THAT(why_mpi_cannot_start(launcher_facts(step), "MPICH 5.0.2"), HasSubstr("--mpi=pmi2"));
  // started by Hydra in such a step, whose variables its ranks inherit
  step.insert({{"PMI_SIZE", "4"}, {"MPI_LOCALNRANKS", "2"}});
  EXPECT_EQ(why_mpi_cannot_start(launcher_facts(step), "MPICH 5.0.2"), "");
  mpirun["TESSERA_LAUNCHER_CHECK"] = "0";
  EXPECT_EQ(why_mpi_cannot_start(launcher_facts(mpirun), "MPICH 5.0.2"), "");
}

TEST(LauncherFacts, VariablesThatAreNoNumbersAreNamed) {
  EXPECT_TRUE(unreadable_variables({{"OMP_NUM_THREADS", "4,2"}, {"SLURM_NTASKS", "8"}}).empty());
  EXPECT_TRUE(unreadable_variables({{"OMP_NUM_THREADS", ""}}).empty());
  auto const warnings = unreadable_variables(
      {{"OMP_NUM_THREADS", "all"}, {"SLURM_NTASKS", "0"}, {"SLURM_JOB_END_TIME", "12x"}});
  ASSERT_EQ(warnings.size(), 3U);
  EXPECT_EQ(warnings[0],
            "OMP_NUM_THREADS=all is not a positive number; it is ignored, set or unset it");
  EXPECT_THAT(warnings[2], HasSubstr("SLURM_JOB_END_TIME=12x"));
}

TEST(LauncherFacts, NumbersThatAreNoneAreIgnored) {
  EXPECT_EQ(launcher_facts({{"SLURM_STEP_NUM_TASKS", "four"},
                            {"SLURM_RESTART_COUNT", ""},
                            {"SLURM_JOB_END_TIME", "12x"}}),
            LauncherFacts{});
}

}  // namespace
}  // namespace tessera::topology
