/// Configurations: Hugging Face's defaults and overrides, old and contradictory files, units and
/// names.
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <map>

#include "tessera/core/error.hpp"
#include "tessera/model/families/registry.hpp"

namespace {

using namespace tessera;
using model::apply_overrides;
using model::default_config;
using model::make_model;
using testing::HasSubstr;

ConfigTree tiny() {
  return apply_overrides(default_config("gpt2"),
                         "vocab_size=50,n_positions=8,n_embd=12,n_layer=2,n_head=3");
}

template <class ErrorType, class Action>
std::string message_of(Action&& action) {
  try {
    action();
  } catch (ErrorType const& e) {
    return e.what();
  }
  return "nothing was thrown";
}

std::string refusal(ConfigTree const& config) {
  return message_of<ConfigError>([&] { make_model(config, Dtype::fp32); });
}

TEST(Config, DefaultsAreThoseOfTransformers) {
  ConfigTree const theirs =
      ConfigTree::read(TESSERA_TEST_DATA "/model/data/gpt2_default_config.json");
  ConfigTree const ours = default_config("gpt2");
  for (auto const& [key, value] : theirs.as_object()) {
    ASSERT_TRUE(ours.contains(key)) << key;
    EXPECT_EQ(ours.at(key).dump(), value.dump()) << key;
  }
  EXPECT_EQ(ours.size(), theirs.size());
}

TEST(Config, OldFileGetsDefaultsAndKeepsItsOtherFields) {
  ConfigTree const old = ConfigTree::parse(
      R"({"model_type": "gpt2", "n_ctx": 16, "n_positions": 16, "n_embd": 8, "n_layer": 1, "n_head": 2, "vocab_size": 20,
          "torch_dtype": "float32", "task_specific_params": {"x": 1}})",
      "old config");
  auto const model = make_model(old, Dtype::bf16);
  ConfigTree const& config = model->config();
  EXPECT_EQ(config.at("layer_norm_epsilon").as_double(), 1e-5);
  EXPECT_EQ(config.at("n_ctx").as_int(), 16);
  EXPECT_TRUE(config.contains("task_specific_params"));
  EXPECT_FALSE(config.contains("torch_dtype"));
  EXPECT_EQ(config.at("dtype").as_string(), "bfloat16");
  EXPECT_EQ(config.at("architectures").dump(), R"(["GPT2LMHeadModel"])");
  EXPECT_EQ(model->max_positions(), 16);
  EXPECT_EQ(model->vocabulary_size(), 20);
}

TEST(Config, OverridesTakeTheTypeOfTheField) {
  ConfigTree const c = apply_overrides(default_config("gpt2"),
                                       "n_embd=256,resid_pdrop=0,scale_attn_weights=no,summary_"
                                       "type=last,n_inner=100,hidden_size=128,bos_token_id=3");
  EXPECT_TRUE(c.at("n_embd").is_int());
  EXPECT_EQ(c.at("n_embd").as_int(), 128);
  EXPECT_FALSE(c.at("resid_pdrop").is_int());
  EXPECT_EQ(c.at("resid_pdrop").as_double(), 0.0);
  EXPECT_FALSE(c.at("scale_attn_weights").as_bool());
  EXPECT_EQ(c.at("summary_type").as_string(), "last");
  EXPECT_EQ(c.at("n_inner").as_int(), 100);
  EXPECT_FALSE(c.contains("hidden_size"));
  EXPECT_EQ(apply_overrides(default_config("gpt2"), ""), default_config("gpt2"));
}

TEST(Config, WrongOverridesAreNamed) {
  auto const refused = [](std::string const& text) {
    return message_of<ConfigError>([&] { apply_overrides(default_config("gpt2"), text); });
  };
  EXPECT_THAT(refused("n_emb=4"), HasSubstr("n_emb is not a field"));
  EXPECT_THAT(refused("n_emb=4,n_layer=2,heads=3"), HasSubstr("n_emb, heads are not fields"));
  EXPECT_THAT(refused("n_embd"), HasSubstr("'n_embd' is not of the form field=value"));
  EXPECT_THAT(refused("n_embd=1.5"), HasSubstr("n_embd=1.5"));
  EXPECT_THAT(refused("n_embd=4x"), HasSubstr("n_embd=4x"));
  EXPECT_THAT(refused("use_cache=maybe"), HasSubstr("true or false"));
}

TEST(Config, WhatCannotWorkIsRefusedByName) {
  EXPECT_THAT(message_of<ConfigError>([] { default_config("bert"); }),
              HasSubstr("'bert' is not supported; supported: gpt2"));
  EXPECT_THAT(refusal(ConfigTree::object()), HasSubstr("config.json has no model_type"));
  EXPECT_THAT(refusal(tiny().set("n_head", 5)),
              HasSubstr("n_embd 12 is not a multiple of n_head 5"));
  EXPECT_THAT(refusal(tiny().set("activation_function", "relu")),
              HasSubstr("activation_function 'relu' is not supported"));
  EXPECT_THAT(refusal(tiny().set("add_cross_attention", true)),
              HasSubstr("add_cross_attention is true"));
  EXPECT_THAT(refusal(tiny().set("vocab_size", 0)), HasSubstr("vocab_size is 0"));
  EXPECT_THAT(refusal(tiny().set("vocab_size", "many")), HasSubstr("vocab_size is \"many\""));
  EXPECT_THAT(refusal(tiny().set("attn_pdrop", 1.0)), HasSubstr("attn_pdrop is 1"));
  EXPECT_THAT(refusal(tiny().set("layer_norm_epsilon", 0.0)),
              HasSubstr("layer_norm_epsilon is 0; it must be positive"));
  EXPECT_THAT(refusal(tiny().set("n_layer", INT32_MAX)),
              HasSubstr("n_layer is 2147483647; at most 100000"));
  EXPECT_THAT(
      refusal(tiny().set("vocab_size", INT32_MAX).set("n_embd", INT32_MAX).set("n_head", 1)),
      HasSubstr("parameters; at most 1e+15"));
  EXPECT_THAT(refusal(tiny().set("hidden_size", 16)), HasSubstr("remove one"));
  EXPECT_THAT(message_of<ConfigError>([] { make_model(tiny(), Dtype::int32); }),
              HasSubstr("a model in int32 is not supported"));
}

TEST(Config, UnitsCarryTheNamesOfTransformers) {
  auto const model = make_model(tiny(), Dtype::fp32);
  auto const& units = model->units();
  ASSERT_EQ(units.size(), 4u);
  EXPECT_EQ(units[0].name, "embedding");
  EXPECT_EQ(units[2].name, "block.1");
  EXPECT_EQ(units[3].name, "head");
  EXPECT_EQ(units[0].parameters[0].name, "transformer.wte.weight");
  EXPECT_THAT(units[0].parameters[0].aliases, testing::ElementsAre("lm_head.weight"));
  ASSERT_EQ(units[2].parameters.size(), 12u);
  EXPECT_EQ(units[2].parameters[2].name, "transformer.h.1.attn.c_attn.weight");
  EXPECT_THAT(units[2].parameters[2].shape, testing::ElementsAre(12, 36));
  EXPECT_THAT(units[2].parameters[10].shape, testing::ElementsAre(48, 12));
  EXPECT_EQ(units[3].parameters.size(), 2u);
}

TEST(Config, InitializationAndDecayFollowTransformers) {
  auto const model = make_model(tiny(), Dtype::fp32);
  std::map<std::string, memory::ParameterSpec> by_name;
  for (auto const& unit : model->units())
    for (auto const& spec : unit.parameters) by_name[spec.name] = spec;
  using Kind = memory::Initializer::Kind;
  for (auto const& [name, spec] : by_name) {
    bool const norm = name.find(".ln_") != std::string::npos, bias = name.ends_with(".bias");
    EXPECT_EQ(spec.decays, !norm && !bias) << name;
    EXPECT_EQ(spec.init.kind, bias ? Kind::zeros : norm ? Kind::ones : Kind::normal) << name;
    if (spec.init.kind != Kind::normal) continue;
    // residual projections shrink with depth: 0.02 / sqrt(2 * 2 layers)
    EXPECT_DOUBLE_EQ(spec.init.stddev, name.ends_with("c_proj.weight") ? 0.01 : 0.02) << name;
  }
}

TEST(Config, TheHiddenSizeNeedsNoModel) {
  EXPECT_EQ(model::hidden_size(default_config("gpt2")), 768);
  EXPECT_EQ(model::hidden_size(ConfigTree::parse(R"({"hidden_size": 12})", "config.json")), 12);
  EXPECT_EQ(model::hidden_size(ConfigTree::object()), 0);
}

TEST(Config, UntiedHeadHasItsOwnWeight) {
  auto const model = make_model(tiny().set("tie_word_embeddings", false), Dtype::fp32);
  auto const& head = model->units().back();
  ASSERT_EQ(head.parameters.size(), 3u);
  EXPECT_EQ(head.parameters[2].name, "lm_head.weight");
  EXPECT_THAT(head.parameters[2].shape, testing::ElementsAre(50, 12));
  EXPECT_TRUE(model->units()[0].parameters[0].aliases.empty());
}

TEST(Config, Gpt2SmallHasItsKnownSize) {
  std::int64_t count = 0;
  auto const model = make_model(default_config("gpt2"), Dtype::fp32);
  for (auto const& unit : model->units())
    for (auto const& spec : unit.parameters) count += spec.numel();
  EXPECT_EQ(count, 124'439'808);
}

}  // namespace
