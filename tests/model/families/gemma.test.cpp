#include "families/family.hpp"

#include "family_suite.hpp"

namespace {

using namespace tessera;
using testing::HasSubstr;

TESSERA_FAMILY_SUITE(Gemma, "gemma")
TESSERA_FAMILY_SUITE(Gemma2, "gemma2")

TEST(GemmaConfig, GeluMeansItsTanhForm) {
  test::StoredCase c = test::family_cases("gemma")[0];
  c.config.set("hidden_act", "gelu");
  test::FamilyModel model(c);
  test::expect_evaluation_matches(c, model);
}

TEST(GemmaConfig, NamesThatVersionsReadDifferentlyAreRefused) {
  ConfigTree config = test::family_cases("gemma")[0].config;
  EXPECT_EQ(test::refusal_of(ConfigTree(config)
                                 .set("hidden_act", "gelu")
                                 .set("hidden_activation", "gelu_pytorch_tanh")),
            "nothing was thrown")
      << "gemma-1.1-7b-it";
  EXPECT_THAT(test::refusal_of(ConfigTree(config).set("hidden_activation", "gelu")),
              HasSubstr("versions of transformers read differently"));
}

TEST(GemmaConfig, WhatIsNotComputedIsRefusedByName) {
  ConfigTree config = test::family_cases("gemma2")[0].config;
  EXPECT_THAT(test::refusal_of(ConfigTree(config).set("use_bidirectional_attention", true)),
              HasSubstr("use_bidirectional_attention true"));
  EXPECT_THAT(test::refusal_of(ConfigTree(config).set("final_logit_softcapping", -1.0)),
              HasSubstr("final_logit_softcapping is -1"));
}

TEST(Gemma2Head, TakesNoOtherLossUnderItsSoftCap) {
  struct Nothing : model::LogitLoss {
    void compute(memory::Queue&, model::LogitChunk const&) override {}
  } loss;
  auto const& c = test::family_cases("gemma2")[0];
  auto const tokens = c.tokens();
  test::FamilyModel model(c);
  try {
    model.evaluate({tokens.data(), c.rows, c.sequence, 0, &loss});
    ADD_FAILURE() << "a loss of uncapped logits was computed";
  } catch (ConfigError const& e) {
    EXPECT_THAT(e.what(), HasSubstr("soft cap"));
  }
}

}  // namespace
