#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <fstream>
#include <iterator>

#include "scratch_files.hpp"
#include "tessera/train/report/tracker.hpp"

namespace tessera::train {
namespace {

using ::testing::ContainsRegex;
using ::testing::HasSubstr;

std::string content(std::filesystem::path const& file) {
  std::ifstream in(file);
  return {std::istreambuf_iterator<char>(in), {}};
}

/// e2e.trackers_read_the_run reads a complete run with MLflow.
TEST(MlflowRun, KeepsValuesBeforeTheStepOfAResume) {
  ScratchFiles const files;
  TrackedRun const tracked{files.directory(), "name", ConfigTree::object().set("seed", 7)};
  {
    auto const run = mlflow_run(tracked, 1);
    for (int step = 1; step <= 3; ++step) run->write(step, {{"train/loss", 0.5 * step}});
  }
  auto const run = mlflow_run(tracked, 3);
  run->write(3, {{"train/loss", NAN}, {"eval/loss", 2.0}});
  run->write_text(3, "eval/samples/0", "text");
  std::filesystem::path directory;
  for (auto const& entry : std::filesystem::directory_iterator(files / "mlruns/0"))
    if (entry.is_directory()) directory = entry.path();
  EXPECT_THAT(content(directory / "metrics/loss"),
              ContainsRegex("^[0-9]+ 0.5 1\n[0-9]+ 1.0 2\n[0-9]+ nan 3\n$"));
  EXPECT_THAT(content(directory / "metrics/eval_loss"), HasSubstr(" 2.0 3\n"));
  EXPECT_EQ(content(directory / "params/seed"), "7");
  EXPECT_EQ(content(directory / "artifacts/eval_samples/0.txt"), "step 3: text\n");
  EXPECT_THAT(content(directory / "meta.yaml"), HasSubstr("end_time: null\n"));
  run->end();
  EXPECT_THAT(content(directory / "meta.yaml"), HasSubstr("status: 3\n"));
}

}  // namespace
}  // namespace tessera::train
