#include "tessera/topology/launcher.hpp"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

namespace tessera::topology {
namespace {

using testing::HasSubstr;

TEST(LauncherFacts, NothingIsSaidOutsideAJob) {
  auto const facts = launcher_facts({});
  EXPECT_EQ(facts, LauncherFacts{});
  EXPECT_EQ(disagreement(facts, 1), "");
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
  EXPECT_EQ(disagreement(facts, 4), "");
}

TEST(LauncherFacts, ABatchScriptHasNotStartedItsTasks) {
  auto const facts =
      launcher_facts({{"SLURM_JOB_ID", "17"}, {"SLURM_NTASKS", "4"}, {"SLURM_PROCID", "0"}});
  EXPECT_EQ(facts.launcher, Launcher::none);
  EXPECT_EQ(disagreement(facts, 1), "");
}

TEST(LauncherFacts, MpirunInsideAJobSpeaksForItsRanks) {
  auto const facts = launcher_facts({{"SLURM_JOB_ID", "17"},
                                     {"SLURM_STEP_NUM_TASKS", "2"},
                                     {"SLURM_PROCID", "0"},
                                     {"OMPI_COMM_WORLD_SIZE", "1"},
                                     {"OMPI_COMM_WORLD_RANK", "0"}});
  EXPECT_EQ(facts.launcher, Launcher::mpirun);
  EXPECT_EQ(disagreement(facts, 1), "");
}

TEST(LauncherFacts, WorldsOfOneRankAreRecognized) {
  LauncherFacts const srun = launcher_facts(
      {{"SLURM_JOB_ID", "17"}, {"SLURM_STEP_NUM_TASKS", "4"}, {"SLURM_PROCID", "1"}});
  EXPECT_THAT(disagreement(srun, 1), HasSubstr("4 processes"));
  EXPECT_THAT(disagreement(srun, 1), HasSubstr("--mpi=pmix"));
  LauncherFacts const hydra = launcher_facts({{"PMI_SIZE", "8"}, {"PMI_RANK", "0"}});
  EXPECT_THAT(disagreement(hydra, 1), HasSubstr("a different MPI"));
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

TEST(LauncherFacts, NumbersThatAreNoneAreIgnored) {
  EXPECT_EQ(launcher_facts({{"SLURM_STEP_NUM_TASKS", "four"},
                            {"SLURM_RESTART_COUNT", ""},
                            {"SLURM_JOB_END_TIME", "12x"}}),
            LauncherFacts{});
}

}  // namespace
}  // namespace tessera::topology
