#include "tessera/optim/optimizer_spec.hpp"

#include <gtest/gtest.h>

#include "tessera/core/error.hpp"

namespace tessera::optim {
namespace {

OptimizerSpec example() {
  return {"Example",
          {{"rate", 0.5}, {"weight_decay", 0.1}},
          {{"sum"}, {"rows", Dtype::fp32, Extent::per_row}},
          decay_groups()};
}

TEST(OptimizerSpec, GroupsOverrideHyperparameters) {
  auto const spec = example();
  EXPECT_EQ(spec.value("weight_decay"), 0.1);
  EXPECT_EQ(spec.value("weight_decay", spec.group_of(WeightDecay::applies)), 0.1);
  EXPECT_EQ(spec.value("weight_decay", spec.group_of(WeightDecay::skipped)), 0.0);
  EXPECT_EQ(spec.value("rate", spec.group_of(WeightDecay::skipped)), 0.5);
  EXPECT_TRUE(spec.has("rate"));
  EXPECT_FALSE(spec.has("beta1"));
  EXPECT_THROW((void)spec.value("beta1"), InternalError);
}

TEST(OptimizerSpec, FindsTheGroupOfAParameter) {
  auto spec = example();
  EXPECT_EQ(spec.group_of(WeightDecay::applies), 0u);
  EXPECT_EQ(spec.group_of(WeightDecay::skipped), 1u);
  spec.groups = one_group();
  EXPECT_EQ(spec.group_of(WeightDecay::applies), 0u);
  EXPECT_EQ(spec.group_of(WeightDecay::skipped), 0u);
  spec.groups = {{"decay", ParameterGroup::Members::decaying, {}}};
  EXPECT_THROW((void)spec.group_of(WeightDecay::skipped), InternalError);
}

TEST(OptimizerSpec, IsAComparableValue) {
  auto const spec = example();
  auto other = spec;
  EXPECT_EQ(other, spec);
  other.states[1].extent = Extent::per_column;
  EXPECT_NE(other, spec);
  other = spec;
  other.hyperparameters[0].value = 0.25;
  EXPECT_NE(other, spec);
}

TEST(OptimizerSpec, ListsTheMasterWeightsFirst) {
  EXPECT_EQ(example().state_names(), (std::vector<std::string>{"fp32", "sum", "rows"}));
}

}  // namespace
}  // namespace tessera::optim
