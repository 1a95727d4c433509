#include "families/family.hpp"

#include "family_suite.hpp"

namespace {

using namespace tessera;
using testing::HasSubstr;

TESSERA_FAMILY_SUITE(Phi, "phi")
TESSERA_FAMILY_SUITE(Phi3, "phi3")

TEST(PhiConfig, WhatIsNotComputedIsRefusedByName) {
  ConfigTree phi = test::family_cases("phi")[0].config, phi3 = test::family_cases("phi3")[0].config;
  EXPECT_THAT(test::refusal_of(phi.set("qk_layernorm", true)), HasSubstr("qk_layernorm true"));
  phi3.set("rope_parameters",
           ConfigTree::parse(R"({"rope_type": "longrope", "short_factor": [1, 1]})", "test"));
  EXPECT_THAT(test::refusal_of(phi3), HasSubstr("long_factor of rope_scaling is missing"));
  phi3.set("rope_parameters", ConfigTree::parse(R"({"rope_type": "longrope",
      "short_factor": [1, 1], "long_factor": [1, 1, 1]})",
                                                "test"));
  EXPECT_THAT(test::refusal_of(phi3), HasSubstr("long_factor of rope_scaling has 3 values"));
}

/// Beyond the original length all keys are rotated otherwise.
TEST(Phi3Longrope, RefusesACacheThatWouldHaveToBeRotatedAgain) {
  for (auto const& c : test::family_cases("phi3")) {
    if (c.name != "long_longrope") continue;
    test::FamilyModel model(c);
    auto const cache = model.lm->make_cache(1, 12, *model.queue);
    auto const tokens = c.tokens();
    auto const decode = [&](std::int32_t first, std::int32_t count) {
      model.lm->decode({tokens.data() + first, 1, count, &first, &count}, *cache, model.params,
                       *model.queue);
    };
    decode(0, 7);
    decode(7, 1);
    try {
      decode(8, 1);
      FAIL() << "nothing was thrown";
    } catch (ConfigError const& e) {
      EXPECT_THAT(e.what(), HasSubstr("generation from 8 to 9 tokens with rope_type longrope"));
    }
    return;
  }
  FAIL() << "there is no such case";
}

}  // namespace
