#include "detail/resolvers.hpp"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "error_of.hpp"
#include "tessera/config/resolved_config.hpp"
#include "tessera/core/error.hpp"

namespace tessera::config::detail {
namespace {

using ::testing::HasSubstr;

std::optional<Tuning> tuning(std::vector<std::string> words, char const* json = "") {
  if (*json) words.insert(words.end(), {"--deepspeed", json});
  return resolve(parse_options(words), 1, 64).tuning;
}

TEST(Tuning, IsOffUnlessAskedFor) {
  EXPECT_FALSE(tuning({}));
  EXPECT_FALSE(tuning({}, R"({"autotuning": {"enabled": false, "tuner_num_trials": 3}})"));
  EXPECT_EQ(tuning({"--auto_tune"}), Tuning{});
  EXPECT_EQ(tuning({}, R"({"autotuning": {"enabled": true}})"), Tuning{});
}

TEST(Tuning, TakesTheKeysOfDeepSpeed) {
  auto const t = tuning({"--tune_minutes", "0.5"}, R"({"autotuning": {"enabled": true,
      "start_profile_step": 2, "end_profile_step": 5, "tuner_num_trials": 7,
      "tuner_early_stopping": 2, "min_train_micro_batch_size_per_gpu": 2,
      "max_train_micro_batch_size_per_gpu": 16, "overwrite": false, "metric": "latency"}})");
  ASSERT_TRUE(t);
  EXPECT_EQ(*t, (Tuning{0.5, 1, 3, 7, 2, 2, 16, false, false, 0.0}));
}

TEST(Tuning, AGridSearchIsExhaustive) {
  auto const exhaustive = [](char const* type) {
    return tuning({"--auto_tune"},
                  concat(R"({"autotuning": {"tuner_type": ")", type, "\"}}").c_str())
        ->exhaustive;
  };
  EXPECT_TRUE(exhaustive("gridsearch"));
  EXPECT_FALSE(exhaustive("model_based"));
  EXPECT_FALSE(exhaustive("random"));
  EXPECT_FALSE(tuning({"--auto_tune"})->exhaustive);
}

TEST(Tuning, ContradictionsAreErrors) {
  auto const error = [](char const* json) {
    return error_of<ConfigError>([&] { (void)tuning({}, json); });
  };
  EXPECT_THAT(error(R"({"autotuning": {"enabled": true, "end_profile_step": 3}})"),
              HasSubstr("start_profile_step is 3 but end_profile_step is 3"));
  EXPECT_THAT(error(R"({"autotuning": {"enabled": true,
                      "min_train_micro_batch_size_per_gpu": 2048}})"),
              HasSubstr("is 2048 but max_train_micro_batch_size_per_gpu is 1024"));
}

}  // namespace
}  // namespace tessera::config::detail
