#include "detail/deepspeed_zero.hpp"

#include <gtest/gtest.h>

#include <set>
#include <string>

namespace tessera::config::detail {
namespace {

OptionTable zero_options() {
  OptionTable table;
  add_zero_optimization(table);
  return table;
}

TEST(DeepSpeedZero, DefaultsAreThoseOfDeepSpeed) {
  auto const table = zero_options();
  auto const default_of = [&](std::string const& name) {
    auto const* option = table.find("zero_optimization." + name);
    return option ? option->default_value.dump() : "missing";
  };
  EXPECT_EQ(default_of("stage"), "0");
  EXPECT_EQ(default_of("reduce_bucket_size"), "500000000");
  EXPECT_EQ(default_of("allgather_bucket_size"), "500000000");
  EXPECT_EQ(default_of("stage3_prefetch_bucket_size"), "50000000");
  EXPECT_EQ(default_of("stage3_param_persistence_threshold"), "100000");
  EXPECT_EQ(default_of("stage3_max_live_parameters"), "1000000000");
  EXPECT_EQ(default_of("sub_group_size"), "1000000000");
}

TEST(DeepSpeedZero, NamesOfStage3AreKnownWithoutTheirPrefix) {
  auto const table = zero_options();
  for (std::string const name :
       {"prefetch_bucket_size", "param_persistence_threshold", "max_live_parameters",
        "max_reuse_distance", "model_persistence_threshold", "gather_16bit_weights_on_model_save"})
    EXPECT_EQ(table.find("zero_optimization." + name),
              table.find("zero_optimization.stage3_" + name))
        << name;
  EXPECT_NE(table.find("zero_optimization.prefetch_bucket_size"), nullptr);
}

TEST(DeepSpeedZero, AddsItsBlockInTwoGroups) {
  std::set<std::string> groups;
  auto const table = zero_options();
  for (auto const& option : table.options()) {
    EXPECT_TRUE(option.name.starts_with("zero_optimization.")) << option.name;
    groups.insert(option.group);
  }
  EXPECT_EQ(groups, (std::set<std::string>{"ZeRO", "ZeRO: offloading and variants"}));
}

TEST(DeepSpeedZero, TakesEveryDeviceOfOffload) {
  auto const table = zero_options();
  EXPECT_TRUE(table.find("zero_optimization.offload_param.device")->exceptions.empty());
  EXPECT_TRUE(table.find("zero_optimization.offload_optimizer.device")->exceptions.empty());
}

}  // namespace
}  // namespace tessera::config::detail
