#include "tessera/kernels/elementwise/gradient_statistics.hpp"

#include <gtest/gtest.h>

#include <cmath>
#include <limits>

#include "tessera/memory/queue.hpp"

namespace tessera::kernels {
namespace {

StepDecision decide(double squares, double nonfinite, GradientLimits const& limits) {
  auto const queue = memory::make_inline_queue("compute");
  double const sums[2] = {squares, nonfinite};
  StepDecision out;
  compute_norm_and_overflow(*queue, &out, sums, limits);
  return out;
}

TEST(StepDecision, UnscalesAndClips) {
  auto const free = decide(16.0 * 64.0 * 64.0, 0, {64.0, 0.0, true});
  EXPECT_EQ(free.norm, 4.0);
  EXPECT_EQ(free.control.gradient_factor, 1.0 / 64.0);
  EXPECT_EQ(free.control.skip, 0);
  EXPECT_EQ(free.finite, 1);
  auto const clipped = decide(16.0, 0, {1.0, 1.0, true});
  EXPECT_DOUBLE_EQ(clipped.control.gradient_factor, 1.0 / (4.0 + 1e-6));
  auto const small = decide(0.25, 0, {2.0, 1.0, true});
  EXPECT_EQ(small.control.gradient_factor, 0.5) << "a norm below the limit is not raised";
}

TEST(StepDecision, SkipsOnOverflowWhereAsked) {
  double const infinity = std::numeric_limits<double>::infinity();
  auto const skipped = decide(1.0, 3.0, {1.0, 1.0, true});
  EXPECT_EQ(skipped.finite, 0);
  EXPECT_NE(skipped.control.skip, 0);
  EXPECT_EQ(skipped.norm, infinity);
  auto const applied = decide(1.0, 3.0, {1.0, 0.0, false});
  EXPECT_EQ(applied.finite, 0);
  EXPECT_EQ(applied.control.skip, 0);
}

}  // namespace
}  // namespace tessera::kernels
