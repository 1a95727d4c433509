#include "slurm/job_script.hpp"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "tessera/core/error.hpp"

namespace tessera::cli {
namespace {

using testing::ElementsAre;

TEST(SbatchOptions, ValuesAreChecked) {
  for (char const* good :
       {"--nodes=2", "--nodes=2-4", "--time=30", "--time=30:00", "--time=12:00:00", "--time=1-12",
        "--time=1-12:30:00", "--time=UNLIMITED", "--gpus-per-node=4", "--gpus-per-node=a100:4",
        "--array=0-7%2", "--array=1,3-5:2", "--signal=USR1@600", "--signal=B:10@60", "--requeue",
        "--constraint=gpu", "--output=%x-%j.out"})
    EXPECT_NO_THROW(check_sbatch_value(good)) << good;
  for (char const* bad :
       {"--nodes=0", "--nodes=", "--nodes=two", "--nodes=-1", "--time=abc", "--time=1:2:3:4",
        "--time=", "--ntasks-per-node=0", "--cpus-per-task=1.5", "--gpus-per-node=0",
        "--gpus-per-node=a100:", "--array=a", "--array=1-", "--signal=@60", "--partition="})
    EXPECT_THROW(check_sbatch_value(bad), UsageError) << bad;
}

/// A job has one request for GPUs, in the form that its machine wants.
TEST(SbatchOptions, GpusAreRequestedOnce) {
  auto const merged = [](std::vector<std::string> const& words) {
    std::vector<std::string> options;
    for (auto const& word : words) set_sbatch_option(options, word);
    return options;
  };
  EXPECT_THAT(merged({"--gres=gpu:4", "--gpus-per-node=2"}), ElementsAre("--gres=gpu:2"));
  EXPECT_THAT(merged({"--gres=gpu:a100:4,nvme:1", "--gpus-per-node=2"}),
              ElementsAre("--gres=gpu:a100:2,nvme:1"));
  EXPECT_THAT(merged({"--gres=gpu:a100:4", "--gpus-per-node=h100:2"}),
              ElementsAre("--gres=gpu:h100:2"));
  EXPECT_THAT(merged({"--gpus-per-node=4", "--gres=gpu:2"}), ElementsAre("--gres=gpu:2"));
  EXPECT_THAT(merged({"--gpus-per-node=4", "--gpus-per-node=2"}), ElementsAre("--gpus-per-node=2"));
  EXPECT_THAT(merged({"--gres=nvme:1", "--gpus-per-node=2"}),
              ElementsAre("--gres=nvme:1", "--gpus-per-node=2"));
  EXPECT_TRUE(is_replaced("--gres=gpu:1  # one", {"--gpus-per-node=4"}));
  EXPECT_FALSE(is_replaced("--gres=nvme:1", {"--gpus-per-node=4"}));
  EXPECT_TRUE(is_replaced("--nodes=2", {"--nodes=4"}));
}

TEST(SbatchOptions, TheScriptSaysTheNumberOfRanks) {
  EXPECT_EQ(ranks_of_script("#!/bin/bash\n#SBATCH --nodes=2\n#SBATCH --ntasks-per-node=4\n"), 8);
  EXPECT_EQ(ranks_of_script("#SBATCH --nodes=2\n#SBATCH --ntasks=6\n"), 6);
  EXPECT_EQ(ranks_of_script("#SBATCH --nodes=2-4\n#SBATCH --ntasks-per-node=4\n"), 0);
  EXPECT_EQ(ranks_of_script("#!/bin/bash\n"), 0);
}

}  // namespace
}  // namespace tessera::cli
