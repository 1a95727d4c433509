#include "doctor/node_report.hpp"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

namespace tessera::cli {
namespace {

using testing::AllOf;
using testing::Contains;
using testing::ElementsAre;
using testing::HasSubstr;
using testing::IsEmpty;
using testing::Pair;
using topology::Environment;

constexpr char const* open_mpi = "Open MPI v4.1.4";

TEST(NodeReport, NamesProcessorAndCores) {
  auto const section = processor_section();
  EXPECT_THAT(section.facts,
              Contains(Pair("hardware", AllOf(HasSubstr("NUMA"), HasSubstr("core")))));
  EXPECT_THAT(section.facts,
              Contains(Pair("for this process", testing::ContainsRegex("^[0-9]+ \\([0-9]+"))));
}

TEST(NodeReport, FileSystemsHaveNames) {
  EXPECT_EQ(file_system_name(0x0BD00BD0), "lustre");
  EXPECT_EQ(file_system_name(0x01021994), "tmpfs");
  EXPECT_EQ(file_system_name(static_cast<long>(0xFFFFFFFF9123683Eu)),
            "btrfs");  // sign-extended where f_type is 32 bits wide
  EXPECT_EQ(file_system_name(0x1234), "0x1234");
}

TEST(NodeReport, AnOutputDirectoryNeedNotExist) {
  auto const section = file_system_section("/proc/none/deeper");
  EXPECT_THAT(section.facts, Contains(Pair("directory", "/proc")));
  auto const memory = file_system_section("/dev/shm/none");
  EXPECT_THAT(memory.problems, Contains(HasSubstr("in the memory of this node")));
}

TEST(NodeReport, LimitsAreListed) {
  EXPECT_THAT(limits_section().facts, AllOf(Contains(Pair("locked memory", testing::_)),
                                            Contains(Pair("open files", testing::_))));
}

TEST(NodeReport, OutsideAJobNothingIsWrong) {
  auto const section = slurm_section({}, "", open_mpi);
  EXPECT_THAT(section.problems, IsEmpty());
  EXPECT_THAT(section.facts, Contains(Pair("job", HasSubstr("not inside"))));
}

TEST(NodeReport, WhatDoesNotFitInAJobIsSaid) {
  Environment job{{"SLURM_JOB_ID", "7"},
                  {"SLURM_CPUS_PER_TASK", "8"},
                  {"SLURM_CPUS_ON_NODE", "32"},
                  {"SLURM_NTASKS_PER_NODE", "4"},
                  {"OMP_NUM_THREADS", "16"}};
  auto const section =
      slurm_section(job, "MPI plugin types are...\n\tcray_shasta\n\tnone\n", open_mpi);
  EXPECT_THAT(section.problems,
              Contains(AllOf(HasSubstr("OMP_NUM_THREADS is 16"), HasSubstr("32 cores"))));
  EXPECT_THAT(section.problems, Contains(HasSubstr("export SRUN_CPUS_PER_TASK=8")));
  EXPECT_THAT(section.problems, Contains(HasSubstr("no PMIx plugin")));
  job["SRUN_CPUS_PER_TASK"] = "8";
  job["OMP_NUM_THREADS"] = "8";
  EXPECT_THAT(slurm_section(job, "MPI plugin types are...\n\tpmix\n", open_mpi).problems,
              IsEmpty());
}

TEST(NodeReport, AStepWithoutPmixIsSaid) {
  Environment const step{{"SLURM_JOB_ID", "7"},
                         {"SLURM_STEP_ID", "0"},
                         {"SLURM_STEP_NUM_TASKS", "2"},
                         {"SLURM_PROCID", "0"},
                         {"SLURM_MPI_TYPE", "none"}};
  EXPECT_THAT(slurm_section(step, "", open_mpi).problems, Contains(HasSubstr("--mpi=pmix")));
  EXPECT_THAT(slurm_section(step, "", "MPICH 4.1").problems, IsEmpty());
}

TEST(NodeReport, ALauncherOfAnotherMpiIsSaid) {
  std::vector<MpiLauncher> const launchers{
      {"mpirun", launcher_version("mpirun (Open MPI) 4.1.4\n\nReport bugs to ...\n")},
      {"mpiexec.mpich",
       launcher_version("HYDRA build details:\n    Version:                4.0.2\n    CC: gcc\n")}};
  auto const facts =
      topology::launcher_facts({{"OMPI_COMM_WORLD_SIZE", "2"}, {"OMPI_COMM_WORLD_RANK", "0"}});
  auto const mpich = launcher_section(facts, launchers, "MPICH 4.0.2");
  EXPECT_THAT(mpich.facts, Contains(Pair("started by", HasSubstr("mpirun of Open MPI, 2"))));
  EXPECT_THAT(mpich.facts, Contains(Pair("mpiexec.mpich", "MPICH 4.0.2")));
  EXPECT_THAT(mpich.problems,
              ElementsAre(AllOf(HasSubstr("mpirun in PATH belongs to Open MPI 4.1.4"),
                                HasSubstr("MPICH 4.0.2"), HasSubstr("use mpiexec.mpich"))));
  EXPECT_THAT(launcher_section({}, launchers, open_mpi).problems, IsEmpty());
  EXPECT_THAT(launcher_section({}, {{"mpiexec", ""}}, "MPICH 4.0.2").problems, IsEmpty());
  EXPECT_EQ(launcher_version("srun 22.05"), "");
}

}  // namespace
}  // namespace tessera::cli
