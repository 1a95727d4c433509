#include "layers/planning.hpp"

#include <gtest/gtest.h>

#include "tessera/memory/planning.hpp"

namespace tessera::model::detail {
namespace {

TEST(Planning, ParametersHaveTheirShapes) {
  UnitSpec unit;
  add_parameter(unit, "weight", {3, 5}, zeros());
  add_parameter(unit, "bias", {5}, zeros());
  std::vector<UnitSpec> const units{unit};
  memory::PlanningQueue queue(memory::MemorySpace::host);
  PlanningParams params(units, Dtype::bf16);
  auto const weights = params.acquire(memory::first_unit, queue);
  ASSERT_EQ(weights.size(), 2u);
  EXPECT_EQ(weights[0].dims(), (std::array<std::int64_t, 4>{3, 5, 0, 0}));
  EXPECT_EQ(weights[1].numel(), 5);
  EXPECT_EQ(weights[1].dtype(), Dtype::bf16);
  EXPECT_FALSE(params.gradient(memory::first_unit, queue).accumulate());
  EXPECT_TRUE(params.gradient(memory::first_unit, queue).accumulate());
}

TEST(Planning, ParametersFollowEachOtherIfBothTrainOrAreFrozen) {
  UnitSpec unit;
  for (char const* const name : {"q", "k", "v"}) add_parameter(unit, name, {16, 4}, zeros());
  memory::PlanningQueue queue(memory::MemorySpace::host);
  auto const follow = [&](std::size_t next) {
    std::vector<UnitSpec> const units{unit};
    PlanningParams params(units, Dtype::bf16);
    auto const weights = params.acquire(memory::first_unit, queue);
    return static_cast<std::byte const*>(weights[next - 1].data()) + weights[next - 1].bytes() ==
           weights[next].data();
  };
  EXPECT_TRUE(follow(1) && follow(2));
  unit.parameters[0].trains = false;
  EXPECT_FALSE(follow(1));
  EXPECT_TRUE(follow(2));
}

}  // namespace
}  // namespace tessera::model::detail
