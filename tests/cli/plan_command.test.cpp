#include "commands.hpp"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "command_output.hpp"
#include "error_of.hpp"
#include "tessera/core/error.hpp"

namespace tessera::cli {
namespace {

using ::testing::AllOf;
using ::testing::HasSubstr;
using ::testing::Not;

std::string plan(std::vector<std::string> words) {
  words.insert(words.begin(), "plan");
  return test::output_of(add_plan, std::move(words));
}

std::vector<std::string> with_model(std::vector<std::string> words) {
  for (auto const* word :
       {"--", "--model_type", "gpt2", "--config_overrides",
        "n_embd=256,n_layer=4,n_head=4,vocab_size=4096", "--bf16", "--block_size", "128"})
    words.emplace_back(word);
  return words;
}

TEST(PlanCommand, PrintsTableLadderConfigurationAndCommand) {
  ::testing::internal::CaptureStderr();
  auto const text =
      plan(with_model({"--nodes", "2", "--gpus_per_node", "4", "--device_memory", "2GiB"}));
  EXPECT_THAT(::testing::internal::GetCapturedStderr(), Not(HasSubstr("warning")));
  for (char const* part : {"8 ranks (2 nodes x 4)", "recompute",
                           "DeepSpeed's estimator, model states per GPU: stage 2 ", "The ladder",
                           "Recommended: stage 0", "ds_plan.json", "\"stage\": 0",
                           "srun --nodes=2 --ntasks-per-node=4 --gpus-per-node=4 tessera-train"})
    EXPECT_THAT(text, HasSubstr(part));
}

TEST(PlanCommand, OptionsOfTheRunSetTheLimits) {
  auto words = with_model({});
  words.insert(words.end(), {"--device_memory", "1200MiB"});
  EXPECT_THAT(plan(words), HasSubstr("device 1.2 GiB"));
  words.back() = "1025MiB";
  EXPECT_THROW(plan(words), ConfigError) << "nothing fits";
}

TEST(PlanCommand, NamesTheMemoryThatIsTooSmall) {
  auto const error = [](std::vector<std::string> const& words) {
    return error_of<ConfigError>([&] { (void)plan(with_model(words)); });
  };
  EXPECT_THAT(error({"--device_memory", "80GiB", "--host_memory", "1MiB"}),
              AllOf(HasSubstr("into 80.0 GiB of device memory and 1.0 MiB of host memory per rank"),
                    Not(HasSubstr("MiB and")), HasSubstr(" MiB of host memory per rank")));
  // one change, as both are needed
  EXPECT_THAT(error({"--device_memory", "1MiB", "--host_memory", "1MiB"}),
              HasSubstr("one of: 1.0 GiB of device memory and "));
}

TEST(PlanCommand, RefusesSizesAndMachinesThatItDoesNotKnow) {
  EXPECT_THROW(plan(with_model({"--nvme", "big"})), UsageError);
  EXPECT_THROW(plan(with_model({"--machine", "abacus"})), UsageError);
  EXPECT_THROW(plan({"--", "--bf16"}), Error) << "no model";
}

}  // namespace
}  // namespace tessera::cli
