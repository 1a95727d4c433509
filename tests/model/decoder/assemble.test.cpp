/// Known sizes of public models, counted without weights, and what no machine can hold.
#include "decoder/assemble.hpp"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "tessera/core/error.hpp"
#include "tessera/model/families/registry.hpp"

namespace tessera::model::detail {
namespace {

std::int64_t parameters_of(CausalLm const& model) {
  std::int64_t count = 0;
  for (auto const& unit : model.units())
    for (auto const& spec : unit.parameters) count += spec.numel();
  return count;
}
std::int64_t parameters_of(char const* config) {
  return parameters_of(*make_model(ConfigTree::parse(config, "config.json"), Dtype::bf16));
}

TEST(Assemble, PublicModelsHaveTheirKnownSizes) {
  EXPECT_EQ(parameters_of(R"({"model_type": "gpt2", "n_embd": 1024, "n_layer": 24, "n_head": 16})"),
            354'823'168);
  EXPECT_EQ(parameters_of(R"({"model_type": "gpt2", "n_embd": 1280, "n_layer": 36, "n_head": 20})"),
            774'030'080);
  EXPECT_EQ(parameters_of(R"({"model_type": "gpt2", "n_embd": 1600, "n_layer": 48, "n_head": 25})"),
            1'557'611'200);
  EXPECT_EQ(parameters_of(R"({"model_type": "gpt_bigcode", "n_embd": 6144, "n_layer": 40,
                              "n_head": 48, "n_inner": 24576, "n_positions": 8192,
                              "vocab_size": 49152})"),
            15'517'456'384)
      << "StarCoder";
  EXPECT_EQ(parameters_of(R"({"model_type": "llama", "intermediate_size": 14336,
                              "num_key_value_heads": 8, "vocab_size": 128256,
                              "rope_theta": 500000.0})"),
            8'030'261'248)
      << "Llama 3 8B";
  EXPECT_EQ(parameters_of(R"({"model_type": "llama", "hidden_size": 8192, "num_hidden_layers": 80,
                              "num_attention_heads": 64, "num_key_value_heads": 8,
                              "intermediate_size": 28672, "vocab_size": 128256,
                              "rope_theta": 500000.0})"),
            70'553'706'496)
      << "Llama 3 70B";
}

DecoderDescription tiny() {
  DecoderDescription d;
  d.names = {.block = "layers.{}",
             .attention = "attn",
             .mlp = "mlp",
             .before_attention = "norm_1",
             .before_mlp = "norm_2",
             .final_norm = "norm",
             .head = "head"};
  d.set_width(8).set_stddev(0.5);
  d.layers = 2;
  d.embedding.token_name = "tokens";
  d.embedding.vocabulary = 11;
  d.embedding.positions = 4;
  d.attention.qkv.heads = d.attention.qkv.kv_heads = 2;
  d.attention.qkv.head_dim = 4;
  d.attention.qkv.names = {"qkv"};
  d.attention.output_name = "out";
  d.mlp.inner = 16;
  d.mlp.expand_name = "in";
  d.mlp.project_name = "out";
  return d;
}

TEST(Assemble, NamesComeFromTheDescription) {
  auto const model = make_decoder("any", tiny(), ConfigTree::object(), {Dtype::fp32, Dtype::fp32});
  auto const& units = model->units();
  ASSERT_EQ(units.size(), 4u);
  ASSERT_EQ(units[0].parameters.size(), 1u) << "no learned positions";
  EXPECT_EQ(units[0].parameters[0].aliases, std::vector<std::string>{"head"});
  std::vector<std::string> names;
  for (auto const& spec : units[2].parameters) names.push_back(spec.name);
  EXPECT_THAT(names, testing::ElementsAre("layers.1.norm_1.weight", "layers.1.norm_1.bias",
                                          "layers.1.attn.qkv.weight", "layers.1.attn.qkv.bias",
                                          "layers.1.attn.out.weight", "layers.1.attn.out.bias",
                                          "layers.1.norm_2.weight", "layers.1.norm_2.bias",
                                          "layers.1.mlp.in.weight", "layers.1.mlp.in.bias",
                                          "layers.1.mlp.out.weight", "layers.1.mlp.out.bias"));
  EXPECT_EQ(units[2].parameters[2].init.stddev, 0.5);
  EXPECT_EQ(units[3].parameters[0].name, "norm.weight");
}

TEST(Assemble, MoreParametersThanAnyModelAreRefused) {
  DecoderDescription d = tiny();
  d.set_width(2'000'000'000);
  d.mlp.inner = 2'000'000'000;
  EXPECT_THROW(make_decoder("any", d, ConfigTree::object(), {Dtype::fp32, Dtype::fp32}),
               ConfigError);
}

}  // namespace
}  // namespace tessera::model::detail
