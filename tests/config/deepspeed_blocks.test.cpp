#include "detail/deepspeed_zero.hpp"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <set>

#include "error_of.hpp"
#include "tessera/config/option_table.hpp"
#include "tessera/config/option_values.hpp"
#include "tessera/core/error.hpp"

namespace tessera::config::detail {
namespace {

using ::testing::HasSubstr;

OptionValues parsed(char const* json) {
  return parse_nested(deepspeed_table(),
                      ConfigTree::parse(json, "ds.json", ConfigTree::Syntax::relaxed), "ds.json");
}
std::string refusal(char const* json) {
  return error_of<ConfigError>([&] { parsed(json); });
}

/// A block that takes any JSON is refused, or its members are names that users choose, or they are
/// checked with their values (quantization_keys.test.cpp).
TEST(DeepSpeedBlocks, NoBlockAcceptsAnything) {
  std::set<std::string> const chosen_by_users{
      "curriculum_learning.schedule_config",
      "data_efficiency.data_sampling.curriculum_learning.curriculum_metrics",
      "data_efficiency.data_routing.random_ltd",
      "zero_optimization.zeropp_loco_param",
      "autotuning.arg_mappings",
      "autotuning.model_info",
      "quantize_training.quantize_bits",
      "quantize_training.quantize_schedule",
      "quantize_training.fp16_mixed_quantize"};
  for (auto const& option : deepspeed_table().options())
    EXPECT_TRUE(option.type != OptionType::json || option.support == Support::refused ||
                chosen_by_users.contains(option.name))
        << option.name << " takes any JSON";
}

TEST(DeepSpeedBlocks, MembersAreChecked) {
  EXPECT_THAT(refusal(R"({"flops_profiler": {"enabled": true, "profil_step": 5}})"),
              HasSubstr("did you mean flops_profiler.profile_step?"));
  EXPECT_THAT(refusal(R"({"comms_logger": {"enabled": "maybe"}})"), HasSubstr("true or false"));
  EXPECT_THAT(refusal(R"({"elasticity": {"enabled": false, "max_gpu": 4}})"),
              HasSubstr("did you mean elasticity.max_gpus?"));
  EXPECT_THAT(refusal(R"({"elasticity": {"enabled": false, "micro_batch_sizes": "2,4"}})"),
              HasSubstr("a list of numbers"));
  EXPECT_THAT(refusal(R"({"wandb": {"enabled": true}})"), HasSubstr("tensorboard or csv_monitor"));
  EXPECT_THAT(refusal(R"({"compression_training": {"enabled": false}})"),
              HasSubstr("not supported"));
  EXPECT_NO_THROW(parsed(R"({"compression_training": {}, "wandb": {"enabled": false, "team": "a"},
      "elasticity": {"enabled": false, "micro_batch_sizes": [2, 4]}})"));
}

}  // namespace
}  // namespace tessera::config::detail
