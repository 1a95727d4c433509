#include "slurm/job_record.hpp"

#include <gtest/gtest.h>

#include <ctime>

namespace tessera::cli {
namespace {

TEST(JobRecord, TheLogFileIsTheOneSlurmNames) {
  EXPECT_EQ(log_file_in("JobId=3 StdErr=/a/b.err StdIn=/dev/null StdOut=/a/b-3.out Power="),
            "/a/b-3.out");
  EXPECT_EQ(log_file_in("slurm_load_jobs error: Invalid job id specified\n"), "");
}

TEST(JobRecord, JobStatesAreReadFromBothPrograms) {
  EXPECT_EQ(job_state_in("OUT_OF_MEMORY|0:125\n"), "OUT_OF_MEMORY");
  EXPECT_EQ(job_state_in("CANCELLED by 0|0:15\n"), "CANCELLED");
  EXPECT_EQ(job_state_in("JobId=3 JobName=x JobState=TIMEOUT Reason=TimeLimit"), "TIMEOUT");
  EXPECT_EQ(job_state_in(""), "");
}

TEST(JobEndTime, IsReadFromScontrol) {
  std::tm when{};
  when.tm_year = 126, when.tm_mon = 0, when.tm_mday = 31, when.tm_hour = 12, when.tm_isdst = -1;
  EXPECT_EQ(
      end_time_in("JobId=3 StartTime=2026-01-31T11:00:00 EndTime=2026-01-31T12:00:00 Deadline=N/A"),
      std::mktime(&when));
  EXPECT_EQ(end_time_in("JobId=3 EndTime=Unknown Deadline=N/A"), std::nullopt);
  EXPECT_EQ(end_time_in(""), std::nullopt);
}

TEST(JobEndTime, NoJobHasNone) { EXPECT_EQ(job_end_time({}), std::nullopt); }

TEST(JobEndTime, TheEnvironmentCountsFirst) {
  topology::LauncherFacts facts;
  facts.slurm = true;
  facts.end_time = 1767225600;
  EXPECT_EQ(job_end_time(facts), 1767225600);
}

TEST(JobRecord, TheLogCountsMoreThanTheState) {
  EXPECT_EQ(state_of({"FAILED", "", "srun: error: n1: task 0: Out Of Memory"}), "OUT_OF_MEMORY");
  EXPECT_EQ(state_of({"FAILED", "", ""}), "FAILED");
  EXPECT_EQ(
      state_of({"", "", "slurmstepd: error: *** JOB 4 ON n1 CANCELLED DUE TO PREEMPTION ***"}),
      "PREEMPTED");
}

}  // namespace
}  // namespace tessera::cli
