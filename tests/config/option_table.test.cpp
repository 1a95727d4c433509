#include "tessera/config/option_table.hpp"

#include <gtest/gtest.h>

namespace tessera::config {
namespace {

TEST(OptionTable, FindsByNameAndAlias) {
  OptionTable t;
  t.group("Numbers");
  t.add(OptionType::integer, "max_steps", -1, "steps to run").alias("steps");
  t.add(OptionType::real, "scale", 1, "a factor");
  ASSERT_NE(t.find("max-steps"), nullptr);
  EXPECT_EQ(t.find("steps"), t.find("max_steps"));
  EXPECT_EQ(t.find("max"), nullptr);
  EXPECT_EQ(t.find("scale")->group, "Numbers");
  EXPECT_EQ(t.find("scale")->default_value, ConfigTree(1.0)) << "a default has its option's type";
  EXPECT_EQ(t.names(), (std::vector<std::string>{"max_steps", "steps", "scale"}));
}

TEST(OptionTable, NearestName) {
  std::vector<std::string> const names{"gradient_clipping", "train_batch_size", "fp16", "bf16",
                                       "per_device_train_batch_size"};
  for (auto const& [typed, expected] : std::vector<std::pair<std::string, std::string>>{
           {"gradient_cliping", "gradient_clipping"},
           {"gradeint_clipping", "gradient_clipping"},
           {"fp61", "fp16"},
           {"bf-16", "bf16"},
           {"per_device", "per_device_train_batch_size"},
           {"nothing_like_it", ""}})
    EXPECT_EQ(nearest_name(typed, names), expected) << typed;
}

}  // namespace
}  // namespace tessera::config
