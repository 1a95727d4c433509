#include "tessera/kernels/optimizer/elementwise_update.hpp"

#include "update_case.hpp"

namespace tessera::kernels::test {
namespace {

TEST(OneBit, BothTraversalsGiveTheSameBits) {
  expect_update_on_both_sides(one_bit_momentum, OneBitAdamStep(), 2, {0});
  expect_update_on_both_sides(one_bit_adam, OneBitAdamStep(), 2, {2});
}

TEST(OneBit, MomentumJoinsTheErrorAndTheFrozenVarianceStays) {
  auto const q = memory::make_inline_queue("compute");
  float p[] = {2.0f}, m[] = {4.0f}, v[] = {4.0f}, e[] = {0.25f}, g[] = {1.0f};
  OneBitAdamStep step;
  step.beta1 = 0.5;
  step.epsilon = 1.0;
  step.gradient_factor = 2.0;
  step.segments = {{p, {m, e}, g, nullptr, 1, 0.5, 0.5}};
  one_bit_momentum(*q, step);
  EXPECT_EQ(m[0], 3.0f);
  EXPECT_EQ(e[0], 3.25f);
  EXPECT_EQ(p[0], 2.0f);
  step.segments = {{p, {m, v}, e, nullptr, 1, 0.5, 0.5}};
  one_bit_adam(*q, step);
  EXPECT_EQ(m[0], 3.25f);
  EXPECT_EQ(v[0], 4.0f);
  EXPECT_FLOAT_EQ(p[0], 2.0f * 0.75f - 0.5f * 3.25f / 3.0f);
}

}  // namespace
}  // namespace tessera::kernels::test
