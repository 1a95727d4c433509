#include "tessera/plan/machine_profile.hpp"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "tessera/core/error.hpp"

namespace tessera::plan {
namespace {

using ::testing::HasSubstr;

ConfigTree least() {
  return ConfigTree::parse(
      R"({"name": "x", "peak_flops": {"bf16": 1e12}, "memory_bandwidth": 1e11,
          "intra_node": {"bandwidth": 1e10}})",
      "test");
}

std::string refusal(ConfigTree const& document) {
  try {
    read_profile(document, "file.json");
  } catch (ConfigError const& e) {
    return e.what();
  }
  return "accepted";
}

TEST(MachineProfile, SurvivesItsJson) {
  auto document = least();
  document.set("device_memory", "80GiB").set("measured", true).set("ranks_per_node", 4);
  document.set("products", ConfigTree::parse(R"([{"dtype": "fp32", "m": 8, "n": 16, "k": 32,
                                                  "flops": 5e9}])",
                                             "test"));
  auto const profile = read_profile(document, "test");
  EXPECT_EQ(profile.device_memory, std::int64_t{80} << 30);
  EXPECT_EQ(profile.ranks_per_node, 4);
  EXPECT_EQ(read_profile(to_json(profile), "again"), profile);
}

TEST(MachineProfile, NearestShapeGivesTheSpeedOfAProduct) {
  auto profile = read_profile(least(), "test");
  profile.product_efficiency = 0.5;
  EXPECT_DOUBLE_EQ(profile.product_speed(Dtype::bf16, 10, 10, 10), 5e11);
  profile.products = {{Dtype::bf16, 64, 64, 64, 1e9}, {Dtype::bf16, 4096, 4096, 4096, 9e9}};
  EXPECT_DOUBLE_EQ(profile.product_speed(Dtype::bf16, 100, 64, 64), 1e9);
  EXPECT_DOUBLE_EQ(profile.product_speed(Dtype::bf16, 9000, 2048, 4096), 9e9);
  EXPECT_THROW((void)profile.product_speed(Dtype::fp32, 1, 1, 1), ConfigError);
}

TEST(MachineProfile, RefusesWhatItDoesNotKnow) {
  auto document = least();
  document.set("intra_nodes", 1.0);
  EXPECT_THAT(refusal(document), HasSubstr("unknown key intra_nodes"));
  document.set("speed", 1.0).set("host_link", ConfigTree::object().set("width", 2.0));
  EXPECT_THAT(refusal(document), HasSubstr("host_link: unknown key width; known are latency, "));
  EXPECT_THAT(refusal(document), HasSubstr("unknown keys intra_nodes, speed; known are name"));
  document = least();
  document.set("pass_efficiency", 1.5);
  EXPECT_THAT(refusal(document), HasSubstr("pass_efficiency is 1.5"));
  document = least();
  document.set("pass_efficiency", 0.0);
  EXPECT_THAT(refusal(document), HasSubstr("use a number above 0 and at most 1"));
  document = least();
  document.set("peak_flops", ConfigTree::object());
  EXPECT_THAT(refusal(document), HasSubstr("no speed of products"));
  document = least();
  document.set("memory_bandwidth", -1.0);
  EXPECT_THAT(refusal(document), HasSubstr("use a number that is not negative"));
  document = least();
  document.set("device_memory", "lots");
  EXPECT_THAT(refusal(document), HasSubstr("device_memory: 'lots' is not a size"));
}

}  // namespace
}  // namespace tessera::plan
