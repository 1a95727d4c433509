#include "interchange/detail/training_source.hpp"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

namespace {

using namespace tessera;
using checkpoint::detail::is_saved_constant;
using checkpoint::detail::possible_names;
using testing::Contains;
using testing::Not;

memory::ParameterSpec named(std::string name, std::vector<std::string> aliases = {}) {
  memory::ParameterSpec out;
  out.name = std::move(name);
  out.aliases = std::move(aliases);
  return out;
}

TEST(ParameterNames, WithAndWithoutTheHeadClassesPrefix) {
  auto const names = possible_names(named("transformer.wte.weight", {"lm_head.weight"}));
  EXPECT_EQ(names[0], "transformer.wte.weight");
  for (char const* other : {"wte.weight", "lm_head.weight", "module.transformer.wte.weight"})
    EXPECT_THAT(names, Contains(other));
  EXPECT_THAT(possible_names(named("layers.0.norm.weight")),
              Contains("model.layers.0.norm.weight"));
  EXPECT_THAT(possible_names(named("gpt_neox.embed_in.weight")), Contains("embed_in.weight"));
}

TEST(ParameterNames, TheHeadOfGptNeoxHasTwo) {
  EXPECT_THAT(possible_names(named("embed_out.weight")), Contains("lm_head.weight"));
  EXPECT_THAT(possible_names(named("lm_head.weight")), Not(Contains("embed_out.weight")));
}

TEST(ParameterNames, AdaptersMayHaveTheNameThatTheyHaveInMemory) {
  EXPECT_THAT(possible_names(named("base_model.model.h.0.attn.c_attn.lora_A.weight")),
              Contains("base_model.model.h.0.attn.c_attn.lora_A.default.weight"));
  using checkpoint::detail::is_peft_adapter;
  EXPECT_TRUE(is_peft_adapter("base_model.model.model.layers.0.mlp.up_proj.lora_B.default.weight"));
  EXPECT_FALSE(is_peft_adapter("base_model.model.model.layers.0.mlp.up_proj.base_layer.weight"));
  EXPECT_FALSE(is_peft_adapter("model.layers.0.mlp.up_proj.weight"));
}

TEST(ParameterNames, ModulesThatTrainInFullAreInBothFiles) {
  auto const names = possible_names(
      named("base_model.model.transformer.wte.weight", {"base_model.model.lm_head.weight"}));
  EXPECT_EQ(names[0], "base_model.model.transformer.wte.weight");
  for (char const* other : {"transformer.wte.weight", "wte.weight", "lm_head.weight"})
    EXPECT_THAT(names, Contains(other));
  EXPECT_THAT(possible_names(named("base_model.model.h.0.fc.lora_magnitude_vector")),
              Contains("base_model.model.h.0.fc.lora_magnitude_vector.default.weight"));
}

TEST(ParameterNames, ConstantsAreNoParameters) {
  EXPECT_TRUE(is_saved_constant("h.0.attn.bias"));
  EXPECT_TRUE(is_saved_constant("gpt_neox.layers.3.attention.rotary_emb.inv_freq"));
  EXPECT_FALSE(is_saved_constant("h.0.attn.c_attn.bias"));
  EXPECT_FALSE(is_saved_constant("gpt_neox.layers.3.attention.dense.bias"));
}

}  // namespace
