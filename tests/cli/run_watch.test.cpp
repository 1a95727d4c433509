#include "recovery/run_watch.hpp"

#include <gtest/gtest.h>

#include <filesystem>
#include <fstream>

#include "scratch_files.hpp"

namespace tessera::cli {
namespace {

TEST(LastStepIn, SkipsLinesThatAreCutOrOfSaves) {
  EXPECT_EQ(last_step_in("loss\": 1}\n{\"step\": 4, \"loss\": 2.5}\n{\"step\": 4, \"checkpoint\": "
                         "\"x\"}\n{\"step\": 5, \"lo"),
            4);
  EXPECT_EQ(last_step_in(""), std::nullopt);
  EXPECT_EQ(last_step_in("\n"), std::nullopt);
}

TEST(RunWatch, SeesWhatChanges) {
  ScratchFiles const scratch;
  auto const status = scratch.path() / "status.json", metrics = scratch.path() / "metrics.jsonl";
  std::ofstream(status) << R"({"state": "failed"})";
  RunWatch watch(scratch.path());
  EXPECT_FALSE(watch.look());
  EXPECT_EQ(watch.state(), "") << "of an earlier attempt";
  std::ofstream(scratch.path() / "new") << R"({"state": "running", "step": 2})";
  std::filesystem::rename(scratch.path() / "new", status);
  std::ofstream(metrics) << "{\"step\": 3, \"loss\": 1.5}\n";
  EXPECT_TRUE(watch.look());
  EXPECT_EQ(watch.state(), "running");
  EXPECT_EQ(watch.step(), 3);
  EXPECT_FALSE(watch.look());
}

}  // namespace
}  // namespace tessera::cli
