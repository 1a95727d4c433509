#include "tessera/train/report/metrics_file.hpp"

#include <gtest/gtest.h>

#include <fstream>
#include <iterator>
#include <string>

#include "scratch_files.hpp"

namespace tessera::train {
namespace {

std::string contents(ScratchFiles const& files) {
  std::ifstream in(files.directory() / "metrics.jsonl");
  return {std::istreambuf_iterator<char>(in), {}};
}

TEST(MetricsFile, AppendsALinePerRecord) {
  ScratchFiles const files;
  MetricsFile metrics(files.directory(), 1);
  metrics.write(ConfigTree().set("step", 1));
  metrics.write(ConfigTree().set("step", 2));
  EXPECT_EQ(contents(files), "{\"step\":1}\n{\"step\":2}\n");
}

TEST(MetricsFile, AResumeDropsTheStepsThatRunAgain) {
  ScratchFiles const files;
  files.write("metrics.jsonl", "{\"step\":1}\n{\"step\":2}\n{\"step\":3}\n{\"step\":4,\"lo");
  {
    MetricsFile metrics(files.directory(), 3);
    metrics.write(ConfigTree().set("step", 3).set("loss", 2.5));
  }
  EXPECT_EQ(contents(files), "{\"step\":1}\n{\"step\":2}\n{\"step\":3,\"loss\":2.5}\n");
  MetricsFile const fresh(files.directory(), 1);
  EXPECT_EQ(contents(files), "") << "a run from the first step starts an empty file";
}

TEST(MetricsFile, AResumeDropsTheEvaluationThatItRepeats) {
  ScratchFiles const files;
  files.write("metrics.jsonl",
              "{\"step\":1,\"eval_loss\":3}\n{\"step\":2}\n{\"step\":2,\"eval_loss\":2}\n");
  MetricsFile const metrics(files.directory(), 3, LastEvaluation::repeated);
  EXPECT_EQ(contents(files), "{\"step\":1,\"eval_loss\":3}\n{\"step\":2}\n");
}

}  // namespace
}  // namespace tessera::train
