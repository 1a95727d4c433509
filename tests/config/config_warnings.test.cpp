#include "tessera/config/resolved_config.hpp"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

namespace tessera::config {
namespace {

using ::testing::Contains;
using ::testing::HasSubstr;
using ::testing::IsEmpty;
using Words = std::vector<std::string>;

std::vector<std::string> warnings_of(Words words, char const* json = "", int ranks = 1) {
  if (*json) words.insert(words.end(), {"--deepspeed", json});
  auto const arguments = parse_options(words);
  return find_warnings(arguments, resolve(arguments, ranks, 64));
}

TEST(ConfigWarnings, AnAssumedWorldSizeIsNone) {
  auto const arguments = parse_options({"--deepspeed", R"({"zero_optimization": {"stage": 2}})"});
  auto const config = resolve(arguments, 1, 64);
  EXPECT_TRUE(find_warnings(arguments, config, WorldSize::assumed).empty());
  EXPECT_EQ(find_warnings(arguments, config, WorldSize::known).size(), 1u);
}

TEST(ConfigWarnings, AreFoundWhereTheyAre) {
  struct Case {
    Words words;
    char const* json;
    int ranks;
    char const* part;
  };
  for (auto const& [words, json, ranks, part] : std::vector<Case>{
           {{"--gradient_accumulation_steps", "4", "--dtype", "bfloat16"},
            R"({"data_types": {"grad_accum_dtype": "bf16"}})",
            1,
            "adds 4 micro-steps in 16 bits"},
           {{"--bf16"}, R"({"bf16": {"enabled": "auto"}})", 2, "communication_data_type to fp32"},
           {{"--fp16"}, R"({"fp16": {"loss_scale": 128}})", 1, "0 makes it dynamic"},
           {{}, R"({"scheduler": {"type": "WarmupLR", "params": {}}})", 1, "first two steps"},
           {{"--max_steps", "10"},
            R"({"scheduler": {"type": "WarmupDecayLR", "params": {"total_num_steps": 100}}})",
            1,
            "write \"auto\""},
           {{"--max_steps", "10", "--warmup_steps", "10"}, "", 1, "never reaches its peak"},
           {{"--max_steps", "10", "--num_train_epochs", "2"}, "", 1, "overrides"},
           {{}, R"({"gradient_clipping": 1})", 2, "stage is not written"},
           {{},
            R"({"zero_optimization": {"stage": 2, "stage3_prefetch_bucket_size": 5}})",
            2,
            "stage3_prefetch_bucket_size has no effect in stage 2"},
           {{}, R"({"zero_optimization": {"stage": 2}})", 1, "partitions nothing"},
           {{"--load_best_model_at_end", "--eval_strategy", "steps", "--greater_is_better"},
            "",
            1,
            "highest loss"},
           {{"--early_stopping_patience", "1", "--eval_strategy", "steps"}, "", 1, "not the best"},
           {{"--save_strategy", "no", "--do_train"}, "", 1, "is killed"},
       })
    EXPECT_THAT(warnings_of(words, json, ranks), Contains(HasSubstr(part))) << part;
}

TEST(ConfigWarnings, AreNotFoundElsewhere) {
  EXPECT_THAT(warnings_of({}), IsEmpty());
  EXPECT_THAT(
      warnings_of({"--bf16", "--max_steps", "100", "--warmup_steps", "10"},
                  R"({"zero_optimization": {"stage": 3}, "communication_data_type": "fp32"})", 4),
      IsEmpty());
}

}  // namespace
}  // namespace tessera::config
