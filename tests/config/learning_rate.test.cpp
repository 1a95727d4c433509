#include "tessera/config/learning_rate.hpp"

#include <gtest/gtest.h>

#include <cmath>

#include "tessera/core/error.hpp"

namespace tessera::config {
namespace {

ResolvedConfig resolved(std::string const& json, std::vector<std::string> const& flags = {}) {
  std::vector<std::string> words{"--model_name_or_path", "gpt2", "--train_file", "a.txt",
                                 "--do_train"};
  words.insert(words.end(), flags.begin(), flags.end());
  TrainingArguments a = parse_arguments(words);
  if (!json.empty()) a.deepspeed = {ConfigTree::parse(json, "ds.json"), "ds.json"};
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

/// 10,000 steps of DeepSpeed's and the Trainer's schedules, resumed in the middle from a state;
/// stored by tests/oracles/deepspeed_config.py: some rates, and the sum of all.
TEST(LearningRate, FollowsDeepSpeedAndTheTrainerOverTenThousandSteps) {
  auto const stored =
      ConfigTree::read(std::string(TESSERA_TEST_DATA) + "/oracles/deepspeed_config.json");
  std::int64_t const steps = stored.at("steps").as_int();
  ASSERT_GE(stored.at("schedules").size(), 12u);
  for (auto const& entry : stored.at("schedules").as_array()) {
    ResolvedConfig config;
    config.learning_rate = stored.at("learning_rate").as_double();
    std::string name;
    if (auto const* section = entry.find("scheduler")) {
      config.scheduler = *section;
      name = section->at("type").as_string();
    } else {
      name = config.lr_scheduler_type = entry.at("lr_scheduler_type").as_string();
      config.warmup_steps = entry.at("warmup_steps").as_double();
      config.lr_scheduler_kwargs = entry.at("lr_scheduler_kwargs");
    }
    auto const schedule = learning_rate_schedule(config, steps);
    double sum = 0.0;
    for (std::int64_t step = 1; step <= steps; ++step) sum += schedule(step);
    EXPECT_NEAR(sum, entry.at("sum").as_double(), 1e-12 * sum) << name;
    for (auto const& sample : entry.at("rates").as_array()) {
      double const want = sample.as_array()[1].as_double();
      EXPECT_NEAR(schedule(sample.as_array()[0].as_int()), want, 1e-12 * std::abs(want) + 1e-18)
          << name << " step " << sample.as_array()[0].as_int();
    }
  }
}

}  // namespace
}  // namespace tessera::config
