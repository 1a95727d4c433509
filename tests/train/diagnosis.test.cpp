#include "tessera/train/diagnosis.hpp"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

namespace tessera::train {
namespace {

using testing::HasSubstr;

ConfigTree status(char const* text) { return ConfigTree::parse(text, "status.json"); }

TEST(Diagnosis, ADoneRunNeedsNothing) {
  auto const d = diagnose(status(R"({"state": "done", "exit_code": 0, "reason": "finished"})"), "COMPLETED");
  EXPECT_THAT(d.what, HasSubstr("done"));
  EXPECT_TRUE(d.advice.empty());
}

TEST(Diagnosis, ALostNodeIsNamed) {
  auto const d = diagnose(status(R"({"state": "failed", "exit_code": 69, "reason": "all_reduce 7: gone", "step": 40, "total_steps": 100,
                                     "last_checkpoint": "step_00000020", "suspect_rank": 5, "suspect_host": "n017"})"), "");
  EXPECT_THAT(d.what, HasSubstr("rank 5 on n017"));
  EXPECT_THAT(d.what, HasSubstr("step_00000020"));
  EXPECT_THAT(d.advice.front(), HasSubstr("--exclude=n017"));
}

TEST(Diagnosis, EveryCodeHasAdvice) {
  for (int const code : {64, 65, 69, 70, 74, 75, 78}) {
    ConfigTree s;
    s.set("state", code == 75 ? "stopped_early" : "failed").set("exit_code", code).set("reason", "because");
    auto const d = diagnose(s, "");
    EXPECT_THAT(d.what, HasSubstr(std::to_string(code)));
    EXPECT_THAT(d.what, HasSubstr("because"));
    EXPECT_FALSE(d.advice.empty()) << code;
  }
}

TEST(Diagnosis, ARunThatWasKilledIsExplainedBySlurm) {
  auto const s = status(R"({"state": "running", "step": 3, "total_steps": 9})");
  EXPECT_THAT(diagnose(s, "OUT_OF_MEMORY").what, HasSubstr("memory"));
  EXPECT_THAT(diagnose(s, "TIMEOUT").advice.front(), HasSubstr("--signal=USR1@600"));
  EXPECT_THAT(diagnose(s, "NODE_FAIL").what, HasSubstr("node failed"));
  EXPECT_THAT(diagnose(s, "").what, HasSubstr("killed"));
  EXPECT_THAT(diagnose(s, "RUNNING").what, HasSubstr("the run is running"));
  EXPECT_FALSE(has_ended(s));
}

TEST(Diagnosis, JobStatesAreReadFromBothPrograms) {
  EXPECT_EQ(job_state_in("OUT_OF_MEMORY|0:125\n"), "OUT_OF_MEMORY");
  EXPECT_EQ(job_state_in("CANCELLED by 0|0:15\n"), "CANCELLED");
  EXPECT_EQ(job_state_in("JobId=3 JobName=x JobState=TIMEOUT Reason=TimeLimit"), "TIMEOUT");
  EXPECT_EQ(job_state_in(""), "");
}

}  // namespace
}  // namespace tessera::train
