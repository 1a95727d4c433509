#include "doctor/diagnosis.hpp"

#include "recovery/run_watch.hpp"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

namespace tessera::cli {
namespace {

using testing::HasSubstr;

ConfigTree status(char const* text) { return ConfigTree::parse(text, "status.json"); }

TEST(Diagnosis, ADoneRunNeedsNothing) {
  auto const d = diagnose(status(R"({"state": "done", "exit_code": 0, "reason": "finished"})"),
                          JobRecord{"COMPLETED", "", ""});
  EXPECT_EQ(d.what, "the run is done: finished");
  EXPECT_TRUE(d.advice.empty());
}

TEST(Diagnosis, ALostNodeIsNamed) {
  auto const d = diagnose(
      status(
          R"({"state": "failed", "exit_code": 69, "reason": "all_reduce 7: gone", "step": 40, "total_steps": 100,
                                     "last_checkpoint": "step_00000020", "suspect_rank": 5, "suspect_host": "n017"})"),
      JobRecord{"", "", ""});
  EXPECT_THAT(d.what, HasSubstr("rank 5 on n017"));
  EXPECT_THAT(d.what, HasSubstr("last checkpoint: step_00000020"));
  EXPECT_THAT(d.advice.front(), HasSubstr("--exclude=n017"));
}

/// On one node there is no other one; without a checkpoint there is nothing to resume.
TEST(Diagnosis, AdviceFitsTheRun) {
  auto const lost = [](char const* more) {
    return diagnose(status((std::string(R"({"state": "failed", "exit_code": 69, "reason": "gone",
                       "suspect_rank": 1, "suspect_host": "n1", )") +
                            more + "}")
                               .c_str()),
                    JobRecord{"", "", ""});
  };
  auto const alone = lost(R"("nodes": 1)"),
             two = lost(R"("nodes": 2, "last_checkpoint": "step_1")");
  EXPECT_THAT(alone.advice, testing::Each(testing::Not(HasSubstr("--exclude"))));
  EXPECT_THAT(alone.advice.front(), HasSubstr("in the log of node n1 why"));
  EXPECT_THAT(alone.advice, testing::Contains(HasSubstr("starts from the first step")));
  EXPECT_THAT(two.advice.front(), HasSubstr("--exclude=n1"));
  EXPECT_THAT(two.advice, testing::Contains(HasSubstr("resume from the last checkpoint")));
  auto const killed = diagnose(status(R"({"state": "running", "step": 3, "total_steps": 9})"),
                               JobRecord{"", "", ""});
  EXPECT_THAT(killed.advice, testing::Each(testing::Not(HasSubstr("resume"))));
}

TEST(Diagnosis, ALivingRunWasNotKilled) {
  auto const d = diagnose(status(R"({"state": "saving", "step": 3, "total_steps": 9})"),
                          JobRecord{"", "", ""}, "process 17 on host n1");
  EXPECT_THAT(d.what,
              testing::AllOf(HasSubstr("the run is saving"), HasSubstr("process 17 on host n1")));
  EXPECT_THAT(d.advice, testing::ElementsAre("no action needed"));
}

TEST(Diagnosis, EveryCodeHasAdvice) {
  for (int const code : {64, 65, 69, 70, 74, 75, 78, 130, 143}) {
    ConfigTree s;
    s.set("state", code == 75 ? "stopped_early" : "failed")
        .set("exit_code", code)
        .set("reason", "because");
    auto const d = diagnose(s, JobRecord{"", "", ""});
    EXPECT_THAT(d.what, HasSubstr("exited with code " + std::to_string(code)));
    EXPECT_THAT(d.what, HasSubstr("Reason: because"));
    EXPECT_FALSE(d.advice.empty()) << code;
    EXPECT_THAT(d.advice, testing::Each(testing::Not(HasSubstr("not one of Tessera's")))) << code;
  }
}

TEST(Diagnosis, ARunThatWasKilledIsExplainedBySlurm) {
  auto const s = status(R"({"state": "running", "step": 3, "total_steps": 9})");
  EXPECT_THAT(diagnose(s, JobRecord{"OUT_OF_MEMORY", "", ""}).what,
              HasSubstr("the memory limit of a node was exceeded"));
  EXPECT_THAT(diagnose(s, JobRecord{"TIMEOUT", "", ""}).advice.front(),
              HasSubstr("--signal=USR1@600"));
  EXPECT_THAT(diagnose(s, JobRecord{"NODE_FAIL", "", ""}).what, HasSubstr("node failed"));
  EXPECT_THAT(diagnose(s, JobRecord{"", "", ""}).what, HasSubstr("it was killed (SIGKILL"));
  EXPECT_THAT(diagnose(s, JobRecord{"RUNNING", "", ""}).what, HasSubstr("the run is running"));
  EXPECT_FALSE(has_ended(s));
}

/// What Slurm 22.05 writes when the memory of a step is exceeded; the job itself ends as FAILED.
TEST(Diagnosis, TheLogTellsWhatTheJobStateDoesNot) {
  std::string const log =
      "2026-01-31 12:00:00 step 3/9  loss 8.2\n"
      "slurmstepd-n1: error: Detected 1 oom-kill event(s) in StepId=5.0. Some of your processes "
      "may have been killed by the cgroup out-of-memory handler.\n"
      "srun: error: n1: task 0: Out Of Memory\n"
      "a line of the script\n";
  auto const evidence = evidence_in(log);
  EXPECT_EQ(evidence, "srun: error: n1: task 0: Out Of Memory");
  auto const running = status(R"({"state": "running", "step": 3, "total_steps": 9})");
  EXPECT_THAT(diagnose(running, {"FAILED", "job.out", evidence}).what, HasSubstr("memory limit"));
  auto const lost = diagnose(
      status(
          R"({"state": "failed", "exit_code": 69, "reason": "gone", "suspect_rank": 1, "suspect_host": "n1"})"),
      {"FAILED", "job.out", evidence});
  EXPECT_THAT(lost.what, testing::AllOf(HasSubstr("rank 1 on n1"), HasSubstr("memory limit")));
  EXPECT_THAT(lost.advice.front(), HasSubstr("request more memory (--mem"));
  EXPECT_EQ(evidence_in("I spoke of Out Of Memory in my text\n"), "");
  EXPECT_THAT(diagnose(running, {"", "",
                                 "slurmstepd: error: *** STEP 4.0 ON n1 CANCELLED AT "
                                 "2026-01-31T12:00:00 DUE TO TIME LIMIT ***"})
                  .advice.front(),
              HasSubstr("--signal=USR1@600"));
}

}  // namespace
}  // namespace tessera::cli
