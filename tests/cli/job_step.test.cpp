#include "recovery/job_step.hpp"

#include <gtest/gtest.h>
#include <signal.h>
#include <sys/wait.h>

#include <algorithm>
#include <cerrno>
#include <chrono>
#include <thread>

#include "tessera/core/process.hpp"

namespace tessera::cli {
namespace {

using namespace std::chrono_literals;

TEST(JobStep, ReportsExitCodesAndMessages) {
  JobStep step({{"sh", "-c", "echo problem >&2; exit 7"}, "sleep", "", ""});
  while (!step.poll()) std::this_thread::sleep_for(1ms);
  step.end();
  EXPECT_EQ(step.poll(), 7);
  JobStep missing({{"/no/such/program"}, "sleep", "", ""});
  while (!missing.poll()) std::this_thread::sleep_for(1ms);
  missing.end();
  EXPECT_EQ(missing.poll(), 127);
}

TEST(JobStep, EndsAllProcessesAlsoStoppedAndOrphanedOnes) {
  {
    JobStep step({{"sh", "-c",
                   "(sleep 1000 & sleep 1000 & sleep 0.3; kill -STOP $!; exit 0) & wait; "
                   "while :; do sleep 1000; done"},
                  "sleep",
                  "",
                  ""});
    auto const is_stopped = [](pid_t pid) {
      auto const stat = process_stat(pid);
      return stat && stat->state == 'T';
    };
    while (step.local_ranks().size() < 3 || !std::ranges::any_of(step.local_ranks(), is_stopped))
      std::this_thread::sleep_for(1ms);
    EXPECT_FALSE(step.poll());
    step.end();
    EXPECT_EQ(step.poll(), 128 + SIGTERM);
  }
  EXPECT_TRUE(descendants().empty());
}

TEST(JobStep, HasTheLastMessagesAfterTheEnd) {
  testing::internal::CaptureStderr();
  JobStep step(
      {{"sh", "-c", "head -c 60000 /dev/zero | tr '\\0' - >&2; echo last >&2"}, "sleep", "", ""});
  while (!step.poll()) {  // as soon as possible
  }
  step.end();
  EXPECT_TRUE(step.messages().ends_with("-last\n"));
  testing::internal::GetCapturedStderr();
}

TEST(JobStep, PassesOnAndKeepsBothStreams) {
  testing::internal::CaptureStdout();
  testing::internal::CaptureStderr();
  JobStep step({{"sh", "-c", "echo output; sleep 0.05; echo error >&2"}, "sleep", "", ""});
  while (!step.poll()) std::this_thread::sleep_for(1ms);
  step.end();
  EXPECT_EQ(step.messages(), "output\nerror\n");
  EXPECT_EQ(testing::internal::GetCapturedStderr(), "error\n");
  EXPECT_EQ(testing::internal::GetCapturedStdout(), "output\n");
}

TEST(JobStep, LeavesNoZombies) {
  JobStep step({{"sh", "-c", "(sleep 0.1 &); sleep 0.5"}, "sleep", "", ""});  // becomes an orphan
  while (!step.poll()) std::this_thread::sleep_for(1ms);
  step.end();
  EXPECT_EQ(::waitpid(-1, nullptr, WNOHANG), -1) << "a child is left";
  EXPECT_EQ(errno, ECHILD);
}

}  // namespace
}  // namespace tessera::cli
