#include "tessera/config/learning_rate.hpp"

#include <gtest/gtest.h>

#include "tessera/core/error.hpp"

namespace tessera::config {
namespace {

ResolvedConfig resolved(std::string const& json, std::vector<std::string> const& flags = {}) {
  std::vector<std::string> words{"--model_name_or_path", "gpt2", "--train_file", "a.txt",
                                 "--do_train"};
  words.insert(words.end(), flags.begin(), flags.end());
  TrainingArguments a = parse_arguments(words);
  if (!json.empty()) a.deepspeed = ConfigTree::parse(json, "ds.json");
  return resolve(a, 1, 64);
}

TEST(LearningRate, FollowsTheSectionOrTheFlag) {
  auto const section = resolved(
      R"({"scheduler": {"type": "WarmupDecayLR", "params": {"warmup_max_lr": "auto", "warmup_num_steps": "auto",
      "total_num_steps": "auto", "warmup_type": "linear"}}})",
      {"--learning_rate", "0.5", "--warmup_steps", "10"});
  EXPECT_DOUBLE_EQ(learning_rate_schedule(section, 100)(12), 0.5);
  EXPECT_DOUBLE_EQ(learning_rate_schedule(section, 100)(57), 0.25);
  auto const flag =
      resolved("", {"--learning_rate", "0.5", "--warmup_steps", "0.1", "--lr_scheduler_type",
                    "cosine_with_min_lr", "--lr_scheduler_kwargs", R"({"min_lr_rate": 0.1})"});
  EXPECT_DOUBLE_EQ(learning_rate_schedule(flag, 100)(11), 0.5);
  EXPECT_NEAR(learning_rate_schedule(flag, 100)(101), 0.05, 1e-15);
}

TEST(LearningRate, WarmupStepsAreANumberOrAShare) {
  EXPECT_EQ(warmup_steps(0.03, 1000), 30);
  EXPECT_EQ(warmup_steps(0.0, 1000), 0);
  EXPECT_EQ(warmup_steps(7, 1000), 7);
  EXPECT_EQ(warmup_steps(resolved("", {"--warmup_ratio", "1"}).warmup_steps, 1000), 1000);
}

TEST(LearningRate, AWarmupThatContradictsTheFlagIsRefused) {
  auto const config = resolved(
      R"({"scheduler": {"type": "WarmupLR", "params": {"warmup_max_lr": 0.1, "warmup_num_steps": 7}}})",
      {"--warmup_steps", "5"});
  EXPECT_THROW(scheduler_section(config, 100), ConfigError);
}

}  // namespace
}  // namespace tessera::config
