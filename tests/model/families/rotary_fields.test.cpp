#include "families/fields.hpp"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "tessera/core/error.hpp"

namespace tessera::model::detail {
namespace {

using kernels::RotaryOptions;
using kernels::RotaryScaling;
using testing::HasSubstr;

ConfigTree config(std::string const& members) {
  return ConfigTree::parse(
      "{\"max_position_embeddings\": 64" + (members.empty() ? "" : ", " + members) + "}", "test");
}
RotaryOptions read(std::string const& members, double part = 1.0) {
  return read_rotary(config(members), {.head_dim = 8, .partial_default = part});
}
std::string refusal(std::string const& members) {
  try {
    read(members);
  } catch (ConfigError const& e) {
    return e.what();
  }
  return "nothing was thrown";
}

TEST(RotaryFields, OfBothVersionsOfTransformersMeanTheSame) {
  for (char const* members :
       {R"("rope_parameters": {"rope_type": "linear", "rope_theta": 500, "factor": 4})",
        R"("rope_theta": 500.0, "rope_scaling": {"type": "linear", "factor": 4.0})"}) {
    auto const rotary = read(members);
    EXPECT_EQ(rotary.scaling, RotaryScaling::linear);
    EXPECT_EQ(rotary.theta, 500.0);
    EXPECT_EQ(rotary.factor, 4.0);
    EXPECT_EQ(rotary.rotary_dim, 8);
  }
  EXPECT_EQ(read(R"("rope_theta": 7.5, "rope_scaling": null)").theta, 7.5);
  EXPECT_EQ(read("").theta, 10000.0);
}

TEST(RotaryFields, ThePartOfAHead) {
  EXPECT_EQ(read(R"("partial_rotary_factor": 0.5)").rotary_dim, 4);
  EXPECT_EQ(read("", 0.25).rotary_dim, 2);
  EXPECT_EQ(read(R"("rope_parameters": {"partial_rotary_factor": 0.5})", 0.25).rotary_dim, 4);
  auto const pythia =
      read_rotary(config(R"("rotary_pct": 0.25, "rotary_emb_base": 100)"),
                  {.head_dim = 16, .theta = "rotary_emb_base", .partial = "rotary_pct"});
  EXPECT_EQ(pythia.rotary_dim, 4);
  EXPECT_EQ(pythia.theta, 100.0);
}

TEST(RotaryFields, Yarn) {
  auto const rotary = read(
      R"("rope_scaling": {"rope_type": "yarn", "original_max_position_embeddings": 16, "beta_fast": 8, "truncate": false})");
  EXPECT_EQ(rotary.scaling, RotaryScaling::yarn);
  EXPECT_EQ(rotary.factor, 4.0) << "max_position_embeddings over the original's";
  EXPECT_EQ(rotary.original_max_positions, 16);
  EXPECT_EQ(rotary.beta_fast, 8.0);
  EXPECT_EQ(rotary.beta_slow, 1.0);
  EXPECT_FALSE(rotary.truncate);
}

/// transformers 5.24: Phi3Config renames su and yarn to longrope and has no other scaling; in other
/// families su is unknown.
TEST(RotaryFields, NamesOfPhi3MeanLongrope) {
  auto const phi3 = [](std::string const& members) {
    return read_rotary(config(members), {.head_dim = 8, .names = RotaryFields::Names::phi3});
  };
  std::string const factors = R"("short_factor": [1, 1, 1, 1], "long_factor": [2, 2, 2, 2], )"
                              R"("original_max_position_embeddings": 16)";
  for (char const* name : {"longrope", "su", "yarn"}) {
    auto const rotary =
        phi3("\"rope_scaling\": {\"type\": \"" + std::string(name) + "\", " + factors + "}");
    EXPECT_EQ(rotary.scaling, RotaryScaling::longrope) << name;
    EXPECT_EQ(rotary.long_factor.size(), 4U);
    EXPECT_EQ(rotary.original_max_positions, 16);
    EXPECT_EQ(rotary.factor, 4.0);
  }
  auto const positions = [&](char const* type) {
    return phi3("\"original_max_position_embeddings\": 32, \"rope_scaling\": {\"type\": \"" +
                std::string(type) + "\", " + factors + "}")
        .original_max_positions;
  };
  EXPECT_EQ(positions("yarn"), 32) << "Phi3Config's own field wins";
  EXPECT_EQ(positions("su"), 16) << "it is moved inside before su is renamed";
  EXPECT_EQ(phi3("").scaling, RotaryScaling::none);
  for (char const* name : {"linear", "dynamic", "llama3"})
    EXPECT_THROW(phi3("\"rope_scaling\": {\"type\": \"" + std::string(name) + "\", \"factor\": 2}"),
                 ConfigError);
  EXPECT_THAT(refusal("\"rope_scaling\": {\"type\": \"su\", " + factors + "}"),
              HasSubstr("rope_type 'su' is not supported"));
}

TEST(RotaryFields, AnEmptyScalingIsNone) {
  EXPECT_EQ(read(R"("rope_scaling": {}, "rope_parameters": {"rope_theta": 7})").theta, 7.0);
}

TEST(RotaryFields, PositionsGrowWithDynamicScalingOnly) {
  auto const positions = [](std::string const& type) {
    auto const c = config("\"rope_scaling\": {\"rope_type\": \"" + type + "\", \"factor\": 2.5}");
    return max_positions(c, read_rotary(c, {.head_dim = 8}));
  };
  EXPECT_EQ(positions("dynamic"), 160);
  EXPECT_EQ(positions("linear"), 64);
}

TEST(RotaryFields, WhatIsNotComputedIsRefusedByName) {
  EXPECT_THAT(refusal(R"("rope_scaling": {"rope_type": "proportional"})"),
              HasSubstr("rope_type 'proportional' is not supported; supported are default"));
  EXPECT_THAT(refusal(R"("rope_scaling": {"rope_type": "longrope", "short_factor": [1, "a"]})"),
              HasSubstr("all must be numbers"));
  EXPECT_THAT(refusal(R"("rope_scaling": {"rope_type": "linear"})"),
              HasSubstr("factor is missing"));
  EXPECT_THAT(refusal(R"("rope_scaling": 2)"), HasSubstr("rope_scaling is"));
  EXPECT_THAT(refusal(R"("rope_parameters": {"full_attention": {"rope_theta": 1.0}})"),
              HasSubstr("rope_parameters.full_attention"));
  EXPECT_THAT(refusal(R"("partial_rotary_factor": 0.4)"), HasSubstr("3 of 8 are rotated"));
  EXPECT_THAT(refusal(R"("partial_rotary_factor": 1.5)"),
              HasSubstr("partial_rotary_factor is 1.5"));
}

TEST(RotaryFields, OlderFieldsAreKnown) {
  EXPECT_TRUE(has_older_rotary_fields(config(R"("rope_theta": 1)")));
  EXPECT_TRUE(has_older_rotary_fields(config(R"("rotary_pct": 0.25)")));
  EXPECT_FALSE(has_older_rotary_fields(config(R"("rope_parameters": {})")));
}

}  // namespace
}  // namespace tessera::model::detail
