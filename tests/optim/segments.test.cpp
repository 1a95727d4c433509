#include "optimizers/segments.hpp"

#include <gtest/gtest.h>

#include "trajectory.hpp"

namespace tessera::optim::test {
namespace {

TEST(Elementwise, TakesTheGroupsWeightDecay) {
  auto const spec = make_spec("SGD", {{"weight_decay", 0.5}});
  Segments segments{{Segment(), Segment()}, Dtype::bf16, Dtype::fp16};
  float weight = 0.0f, state = 0.0f;
  segments.list[0].master = &weight;
  segments.list[0].states = {&state};
  segments.list[1].group = 1;
  segments.list[1].numel = 3;
  kernels::ElementwiseUpdate out;
  kernels::GradientControl const control;
  detail::set_segments(out, spec, segments, {4, 0.25, &control});
  ASSERT_EQ(out.segments.size(), 2u);
  EXPECT_EQ(out.segments[0].weight_decay, 0.5);
  EXPECT_EQ(out.segments[0].states[0], &state);
  EXPECT_EQ(out.segments[1].weight_decay, 0.0);
  EXPECT_EQ(out.segments[1].numel, 3);
  EXPECT_EQ(out.segments[1].learning_rate, 0.25);
  EXPECT_EQ(out.control, &control);
  EXPECT_EQ(out.gradient_dtype, Dtype::bf16);
  EXPECT_EQ(out.weights_dtype, Dtype::fp16);
}

TEST(Elementwise, CorrectsBiasByTheStep) {
  EXPECT_DOUBLE_EQ(detail::bias_correction(0.9, 1), 1.0 - 0.9);
  EXPECT_DOUBLE_EQ(detail::bias_correction(0.5, 3), 0.875);
}

}  // namespace
}  // namespace tessera::optim::test
