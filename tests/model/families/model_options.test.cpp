/// What ModelOptions change in a description and in config.json.
#include "families/fields.hpp"

#include <gtest/gtest.h>

#include "tessera/core/error.hpp"

namespace tessera::model::detail {
namespace {

TEST(ModelOptions, ReplaceTheHead) {
  DecoderDescription description;
  description.names.head = "lm_head.weight";
  description.names.head_bias = "lm_head.bias";
  description.logit_cap = 30.0;
  ModelOptions options = Dtype::bf16;
  options.head = {.outputs = 3, .architecture = "LlamaForSequenceClassification"};
  options.label_smoothing = 0.25;
  apply_options(description, options);
  EXPECT_EQ(description.names.head, "score.weight");
  EXPECT_EQ(description.replaced_head, "lm_head.weight");
  EXPECT_TRUE(description.names.head_bias.empty());
  EXPECT_EQ(description.head_outputs, 3);
  EXPECT_EQ(description.logit_cap, 0.0);
  EXPECT_FALSE(description.tied);
  EXPECT_EQ(description.label_smoothing, 0.25);

  auto config = ConfigTree::object();
  config.set("torch_dtype", "float32");
  write_options(config, options, "LlamaForCausalLM");
  EXPECT_EQ(
      config.dump(),
      R"({"architectures":["LlamaForSequenceClassification"],"num_labels":3,"dtype":"bfloat16"})");
}

TEST(ModelOptions, LeaveTheClassOfAConfigurationWithoutOne) {
  auto config = ConfigTree::object();
  write_options(config, Dtype::fp32, "");
  EXPECT_EQ(config.dump(), "{\"dtype\":\"float32\"}");
  write_options(config, Dtype::fp16, "GPT2LMHeadModel");
  EXPECT_EQ(config.dump(), R"({"dtype":"float16","architectures":["GPT2LMHeadModel"]})");
}

TEST(ModelOptions, RefuseFrequenciesThatDependOnTheLengthWithPositionsOfDocuments) {
  DecoderDescription description;
  description.rotary.emplace();
  description.rotary->scaling = kernels::RotaryScaling::dynamic;
  ModelOptions options = Dtype::fp32;
  options.documents.reset_position_ids = true;
  EXPECT_THROW(apply_options(description, options), ConfigError);
  description.rotary->scaling = kernels::RotaryScaling::linear;
  apply_options(description, options);
  EXPECT_THROW(apply_options(description, Dtype::uint8), ConfigError);
}

}  // namespace
}  // namespace tessera::model::detail
