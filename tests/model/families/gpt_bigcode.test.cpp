#include "families/family.hpp"

#include "family_suite.hpp"

namespace {

using namespace tessera;
using testing::HasSubstr;

TESSERA_FAMILY_SUITE(GptBigcode, "gpt_bigcode")

TEST(GptBigcodeConfig, WhatIsNotComputedIsRefusedByName) {
  ConfigTree const config = test::family_cases("gpt_bigcode")[0].config;
  auto const refusal = [&](char const* key, ConfigTree value) {
    return test::refusal_of(ConfigTree(config).set(key, std::move(value)));
  };
  EXPECT_THAT(refusal("activation_function", "mish"), HasSubstr("activation_function 'mish'"));
  EXPECT_THAT(refusal("add_cross_attention", true), HasSubstr("set it to false"));
  EXPECT_THAT(refusal("n_head", 3), HasSubstr("n_embd 16 is not a multiple of n_head 3"));
}

}  // namespace
