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

/// 2026-01-01T00:00:00 UTC.
constexpr std::int64_t end = 1767225600;

std::string not_asked(std::string const& job) {
  ADD_FAILURE() << "scontrol is asked for job " << job;
  return "";
}

TEST(JobEndTime, AJobOfPbsEndsAtStartPlusWalltime) {
  char const* const qstat =
      "Job Id: 17.head\n    Job_Name = tessera\n    resources_used.walltime = 00:00:05\n    "
      "Resource_List.walltime = 01:30:00\n    stime = Thu Jan  1 12:00:00 2026\n";
  std::tm noon{};
  noon.tm_year = 126, noon.tm_mday = 1, noon.tm_hour = 12, noon.tm_isdst = -1;
  EXPECT_EQ(end_time_in_qstat(qstat), std::mktime(&noon) + 5400);
  EXPECT_EQ(end_time_in_qstat("Job Id: 17.head\n    Resource_List.walltime = 01:30:00\n"),
            std::nullopt)
      << "not started";
  EXPECT_EQ(end_time_in_qstat(""), std::nullopt);
  topology::LauncherFacts facts;
  facts.job_id = "17.head";
  EXPECT_EQ(job_end_time(facts, 0, [&](std::string const&) { return qstat; }).time,
            std::mktime(&noon) + 5400);
}

TEST(JobEndTime, NoJobHasNone) { EXPECT_EQ(job_end_time({}, end, not_asked).time, std::nullopt); }

TEST(JobEndTime, TheEnvironmentCountsFirst) {
  topology::LauncherFacts facts;
  facts.slurm = true;
  facts.end_time = end;
  auto const found = job_end_time(facts, end - 60, not_asked);
  EXPECT_EQ(found.time, end);
  EXPECT_EQ(found.problem, "");
}

TEST(JobEndTime, ALimitThatWasExtendedIsSlurms) {
  topology::LauncherFacts facts;
  facts.slurm = true, facts.job_id = "17", facts.end_time = end;
  auto const later = [](std::string const& job) {
    EXPECT_EQ(job, "17");
    return std::string("JobId=17 EndTime=2026-01-05T12:00:00 Deadline=N/A");
  };
  auto const found = job_end_time(facts, end + 60, later);
  EXPECT_GT(found.time.value_or(0), end + 60);
  EXPECT_EQ(found.problem, "");
}

TEST(JobEndTime, ATimeInThePastIsIgnoredWithAWarning) {
  topology::LauncherFacts facts;
  facts.slurm = true, facts.job_id = "17", facts.end_time = end;
  std::string const outputs[] = {"", "JobId=17 JobState=COMPLETED EndTime=2025-12-31T12:00:00 "};
  for (auto const& output : outputs) {
    auto const found = job_end_time(facts, end + 7200, [&](std::string const&) { return output; });
    EXPECT_EQ(found.time, std::nullopt);
    for (char const* part : {"SLURM_JOB_END_TIME=1767225600", "in the past", "job 17", "unset"})
      EXPECT_NE(found.problem.find(part), std::string::npos) << found.problem;
  }
  facts.slurm = false, facts.job_id = "";
  EXPECT_EQ(job_end_time(facts, end + 1, not_asked).time, std::nullopt);
  EXPECT_NE(job_end_time(facts, end + 1, not_asked).problem, "");
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
