#include "tessera/plan/run_time.hpp"

#include <gtest/gtest.h>

#include "plan_fixture.hpp"

namespace tessera::plan {
namespace {

TEST(CheckpointAdvice, IsYoungsInterval) {
  auto machine = test::round_machine();
  EXPECT_FALSE(checkpoint_advice(1e9, {1, 1}, machine));
  machine.save_bandwidth = 1e9;
  EXPECT_DOUBLE_EQ(checkpoint_advice(8e9, {4, 1}, machine)->save_seconds, 2.0);
  EXPECT_DOUBLE_EQ(checkpoint_advice(8e9, {4, 1}, machine)->interval, 0.0) << "no failure rate";
  machine.node_failure_hours = 4.0;
  auto const advice = *checkpoint_advice(8e9, {4, 1}, machine);
  EXPECT_DOUBLE_EQ(advice.interval, 120.0) << "sqrt(2 * 2 s * 3600 s)";
  EXPECT_DOUBLE_EQ(advice.lost, 2.0 / 120 + 120.0 / 7200);
}

TEST(CheckpointAdvice, LosesLessThanAnyOtherInterval) {
  auto machine = test::round_machine();
  machine.save_bandwidth = 5e9;
  machine.node_failure_hours = 6250;
  auto const advice = *checkpoint_advice(2e12, {128, 8}, machine);
  double const failures = 3600.0 * 6250 / 128;
  for (double const factor : {0.5, 0.9, 1.1, 2.0}) {
    double const other = factor * advice.interval;
    EXPECT_GT(advice.save_seconds / other + other / (2 * failures), advice.lost);
  }
}

}  // namespace
}  // namespace tessera::plan
