#include "tessera/kernels/optimizer/one_bit.hpp"

#include "update_case.hpp"

namespace tessera::kernels::test {
namespace {

TEST(OneBit, BothTraversalsGiveTheSameBits) {
  expect_update_on_both_sides(one_bit_momentum, OneBitAdamStep(), 2, {0});
  expect_update_on_both_sides(one_bit_adam, OneBitAdamStep(), 2, {2});
  expect_update_on_both_sides(one_bit_gradient, ElementwiseUpdate(), 1, {0});
  expect_update_on_both_sides(zero_one_adam, OneBitAdamStep(), 2, {2});
  ZeroOneStep opens;
  opens.opens_interval = true;
  opens.rate_sum = 0.5;
  expect_update_on_both_sides(zero_one_local, opens, 4, {2});
  expect_update_on_both_sides(zero_one_local, ZeroOneStep(), 4, {2, 4});
  expect_update_on_both_sides(zero_one_exchange, opens, 3, {2});
  EXPECT_THROW(zero_one_exchange(*memory::make_inline_queue("compute"), {}), InternalError);
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

TEST(OneBit, AnIntervalAddsUpWhatTheWeightsMove) {
  auto const q = memory::make_inline_queue("compute");
  float p[] = {2.0f}, m[] = {4.0f}, v[] = {9.0f}, e[] = {0.0f}, b[] = {0.0f}, g[] = {2.0f};
  ZeroOneStep step;
  step.beta1 = 0.5;
  step.epsilon = 1.0;
  step.opens_interval = true;
  step.rate_sum = 1.0;
  step.segments = {{p, {m, v, e, b}, g, nullptr, 1, 0.5, 0.25}};
  zero_one_local(*q, step);
  EXPECT_EQ(b[0], 2.0f);
  EXPECT_EQ(m[0], 3.0f);
  EXPECT_FLOAT_EQ(e[0], -0.5f * (3.0f + 0.25f * 2.0f * 4.0f));
  EXPECT_FLOAT_EQ(p[0], 2.0f + e[0] / 4.0f);
  step.opens_interval = false;
  zero_one_local(*q, step);
  EXPECT_EQ(b[0], 2.0f);
  float const moved = p[0];
  step.segments = {{p, {m, v, b}, e, nullptr, 1, 0.5, 0.25}};
  zero_one_exchange(*q, step);
  EXPECT_FLOAT_EQ(p[0], moved);  // alone, the exchange changes nothing
  EXPECT_EQ(b[0], p[0]);
  EXPECT_EQ(m[0], -e[0]);
}

}  // namespace
}  // namespace tessera::kernels::test
