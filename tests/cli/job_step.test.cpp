#include "recovery/job_step.hpp"

#include <gtest/gtest.h>
#include <signal.h>

#include <chrono>
#include <thread>

namespace tessera::cli {
namespace {

using namespace std::chrono_literals;

TEST(JobStep, ReportsExitCodesAndMessages) {
  JobStep step({{"sh", "-c", "echo problem >&2; exit 7"}, "sleep", "", ""});
  while (!step.poll()) std::this_thread::sleep_for(1ms);
  step.end();
  EXPECT_EQ(step.poll(), 7);
  JobStep missing({{"/no/such/program"}, "sleep", "", ""});
  missing.end();
  EXPECT_EQ(missing.poll(), 127);
}

TEST(JobStep, EndsAllProcessesAlsoStoppedAndOrphanedOnes) {
  {
    JobStep step(
        {{"sh", "-c",
          "(sleep 1000 & sleep 1000 & sleep 0.3; kill -STOP $!; exit 0) & wait; sleep 1000"},
         "sleep",
         "",
         ""});
    while (step.local_ranks().size() < 3) std::this_thread::sleep_for(1ms);
    EXPECT_FALSE(step.poll());
    step.end();
    EXPECT_EQ(step.poll(), 128 + SIGTERM);
  }
  EXPECT_TRUE(descendants().empty());
}

}  // namespace
}  // namespace tessera::cli
