#include "launch/run_program.hpp"

#include <gtest/gtest.h>

namespace tessera::cli {
namespace {

using namespace std::chrono_literals;

TEST(RunProgram, HandsWordsOverAsTheyAre) {
  EXPECT_EQ(output_of({"printf", "%s|", "a b", "$HOME", ";x"}, 5s), "a b|$HOME|;x|");
}

TEST(RunProgram, ReportsHowItEnded) {
  EXPECT_EQ(run_program({"sh", "-c", "exit 3"}, 5s).code, 3);
  EXPECT_EQ(run_program({"sh", "-c", "kill -9 $$"}, 5s).code, 137);
  EXPECT_EQ(run_program({"no-such-program"}, 5s).code, -1);
  EXPECT_EQ(output_of({"sh", "-c", "echo x; exit 1"}, 5s), "");
}

TEST(RunProgram, CapturesErrorsWhenAsked) {
  EXPECT_EQ(run_program({"sh", "-c", "echo out; echo err >&2"}, 5s).output, "out\n");
  EXPECT_EQ(run_program({"sh", "-c", "echo out; echo err >&2"}, 5s, Capture::both).output,
            "out\nerr\n");
}

TEST(RunProgram, DoesNotWaitForEver) {
  auto const start = std::chrono::steady_clock::now();
  EXPECT_EQ(run_program({"sleep", "30"}, 200ms).code, -1);
  EXPECT_LT(std::chrono::steady_clock::now() - start, 10s);
}

}  // namespace
}  // namespace tessera::cli
