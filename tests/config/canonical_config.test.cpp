#include "detail/resolvers.hpp"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "error_of.hpp"
#include "tessera/core/error.hpp"

namespace tessera::config::detail {
namespace {

using ::testing::ElementsAre;
using ::testing::HasSubstr;

CanonicalConfig canonical(char const* json) {
  return canonical_config(ConfigTree::parse(json, "ds.json"), "ds.json");
}

TEST(CanonicalConfig, OldNamesAreTranslatedWithANote) {
  auto const offload = canonical(R"({"zero_optimization": {"stage": 2, "cpu_offload": true}})");
  EXPECT_EQ(offload.tree.dump(),
            R"({"zero_optimization":{"stage":2,"offload_optimizer":{"device":"cpu"}}})");
  EXPECT_THAT(offload.notes, ElementsAre(HasSubstr("cpu_offload: deprecated")));
  EXPECT_EQ(canonical(R"({"zero_optimization": {"cpu_offload_param": false}})").tree.dump(),
            R"({"zero_optimization":{}})");
  auto const legacy = canonical(R"({"zero_optimization": true, "allgather_size": 1000})");
  EXPECT_EQ(legacy.tree.dump(),
            R"({"zero_optimization":{"stage":1,"allgather_bucket_size":1000}})");
  EXPECT_THAT(legacy.notes,
              ElementsAre(HasSubstr("zero_optimization: true and false are deprecated")));
  EXPECT_EQ(canonical(R"({"bfloat16": {"enabled": true}})").tree.dump(),
            R"({"bf16":{"enabled":true}})");
  EXPECT_THAT(error_of<ConfigError>([] {
                canonical(R"({"zero_optimization": {"cpu_offload": true,
                              "offload_optimizer": {"device": "cpu"}}})");
              }),
              HasSubstr("old name of offload_optimizer"));
}

TEST(CanonicalConfig, EqualRatesOfGroupsAreOneRate) {
  EXPECT_EQ(canonical(R"({"scheduler": {"type": "WarmupLR", "params": {"warmup_max_lr": [0.1, 0.1],
                    "warmup_min_lr": [0.1, 0.2]}}})")
                .tree.at("scheduler")
                .at("params")
                .dump(),
            R"({"warmup_max_lr":0.1,"warmup_min_lr":[0.1,0.2]})");
}

}  // namespace
}  // namespace tessera::config::detail
