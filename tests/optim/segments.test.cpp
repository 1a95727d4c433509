#include "optimizers/segments.hpp"

#include <gtest/gtest.h>

#include "trajectory.hpp"

namespace tessera::optim::test {
namespace {

TEST(Elementwise, TakesTheGroupsWeightDecay) {
  Segments segments{{Segment(), Segment()}, Dtype::fp32, Dtype::fp16};
  float weights[] = {4.0f, 4.0f}, gradient = 2.0f;
  float16 rounded[2];
  for (std::size_t k : {0, 1}) {
    auto& s = segments.list[k];
    s.master = weights + k;
    s.gradient = &gradient;
    s.weights_out = rounded + k;
    s.numel = 1;
    s.group = k;
  }
  kernels::GradientControl const control{0.5, 0};
  auto const optimizer = make_optimizer(make_spec("SGD", {{"weight_decay", 0.5}}));
  optimizer->update(*memory::make_inline_queue("compute"), segments, {4, 0.25, &control});
  EXPECT_EQ(weights[0], 3.25f);  // 4 - 0.25 (1 + 0.5 * 4)
  EXPECT_EQ(weights[1], 3.75f);
  EXPECT_EQ(static_cast<float>(rounded[0]), 3.25f);
}

TEST(Elementwise, CorrectsBiasByTheStep) {
  EXPECT_DOUBLE_EQ(detail::bias_correction(0.9, 1), 1.0 - 0.9);
  EXPECT_DOUBLE_EQ(detail::bias_correction(0.5, 3), 0.875);
}

}  // namespace
}  // namespace tessera::optim::test
