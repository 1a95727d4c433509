#include "families/family.hpp"

#include "family_suite.hpp"

namespace {

using namespace tessera;
using namespace tessera::test;
using testing::HasSubstr;

TESSERA_FAMILY_SUITE(Llama, "llama")
TESSERA_FAMILY_SUITE(Mistral, "mistral")
TESSERA_FAMILY_SUITE(Qwen2, "qwen2")
TESSERA_FAMILY_SUITE(Qwen3, "qwen3")

/// Cases of tests/oracles/padding.py: a padding token in the text.
using Padded = FamilyTest;
INSTANTIATE_TEST_SUITE_P(Stored, Padded, testing::ValuesIn(read_cases("padding")),
                         [](auto const& info) { return info.param.name; });

TEST_P(Padded, TrainingMatchesTransformers) {
  FamilyModel model(GetParam());
  expect_training_matches(GetParam(), model);
}

TEST_P(Padded, TenStepsMatchTransformers) { expect_trajectory(GetParam()); }

TEST_P(Padded, TheRowsOfTransformersStartAtZero) {
  auto const model = model::make_model(GetParam().config, Dtype::fp32);
  auto const& embedding = model->units().front().parameters.front();
  std::vector<float> values(static_cast<std::size_t>(embedding.numel()));
  model::initialize_parameter(embedding, 42, 0, embedding.numel(), values.data());
  std::int64_t const width = embedding.shape[1];
  ConfigTree::Array zero_rows;
  for (std::int64_t row = 0; row < embedding.shape[0]; ++row)
    if (std::all_of(values.begin() + row * width, values.begin() + (row + 1) * width,
                    [](float x) { return x == 0.0f; }))
      zero_rows.emplace_back(row);
  EXPECT_EQ(ConfigTree(zero_rows).dump(), GetParam().entry.at("zero_rows").dump());
}

TEST(LlamaNumbers, SixteenBitsAreAsGoodAsTorch) {
  auto const& c = family_cases("llama")[0];
  for (Dtype const dtype : {Dtype::bf16, Dtype::fp16})
    expect_no_worse_than_torch(c, dtype, named_weights("llama"));
}

ConfigTree changed(char const* family, char const* key, ConfigTree value) {
  return ConfigTree(family_cases(family)[0].config).set(key, std::move(value));
}

TEST(LlamaConfig, WhatIsNotComputedIsRefusedByName) {
  EXPECT_THAT(refusal_of(changed("llama", "hidden_act", "mish")), HasSubstr("hidden_act 'mish'"));
  EXPECT_THAT(refusal_of(changed("llama", "num_key_value_heads", 3)),
              HasSubstr("num_attention_heads 4 is not a multiple of num_key_value_heads 3"));
  EXPECT_THAT(refusal_of(changed("llama", "rms_norm_eps", 0.0)), HasSubstr("rms_norm_eps is 0"));
  EXPECT_THAT(refusal_of(changed("llama", "head_dim", 5)), HasSubstr("even number"));
  ConfigTree window = changed("qwen2", "use_sliding_window", true);
  window.set("sliding_window", 4);
  EXPECT_THAT(refusal_of(window.set("layer_types", ConfigTree::Array{"full_attention"})),
              HasSubstr("layer_types must be a list of 2"));
  EXPECT_THAT(refusal_of(window.set("layer_types",
                                    ConfigTree::Array{"full_attention", "chunked_attention"})),
              HasSubstr("chunked_attention"));
}

/// transformers 4 has rope_theta and rope_scaling, and leaves out what follows from other fields.
TEST(LlamaConfig, FilesOfTransformers4AreRead) {
  auto const& c = family_cases("llama")[3];
  ASSERT_EQ(c.name, "llama3_rope");
  StoredCase older = c;
  ConfigTree const rope = c.config.at("rope_parameters");
  older.config.erase("rope_parameters");
  older.config.erase("head_dim");
  older.config.set("rope_theta", rope.at("rope_theta")).set("rope_scaling", rope);
  FamilyModel model(older);
  expect_evaluation_matches(older, model);
  EXPECT_FALSE(model.lm->config().contains("rope_parameters")) << "the file keeps its own fields";
}

TEST(LlamaConfig, PositionsAreThoseTheModelWasTrainedWith) {
  auto const positions = [](std::size_t index) {
    return FamilyModel(family_cases("llama")[index]).lm->max_positions();
  };
  EXPECT_EQ(positions(0), 16);
  EXPECT_EQ(positions(5), 32) << "dynamic scaling by 2";
  FamilyModel model(family_cases("llama")[0]);
  std::vector<std::int32_t> const tokens(17, 1);
  try {
    model.evaluate({tokens.data(), 1, 17});
    ADD_FAILURE() << "17 positions of 16 were evaluated";
  } catch (ConfigError const& e) {
    EXPECT_THAT(e.what(), HasSubstr("larger max_position_embeddings"));
  }
}

}  // namespace
