#include "detail/phi.hpp"

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
  EXPECT_THAT(test::refusal_of(phi3), HasSubstr("rope_type 'longrope'"));
}

}  // namespace
