/// Its values are compared with stored ones in tests/optim.
#include "tessera/kernels/optimizer/elementwise_update.hpp"

#include "update_case.hpp"

namespace tessera::kernels::test {
namespace {

TEST(Adagrad, BothTraversalsGiveTheSameBits) {
  expect_update_on_both_sides(adagrad, AdagradStep(), 1);
}

TEST(Adagrad, StartsFromTheInitialSum) {
  auto const q = memory::make_inline_queue("compute");
  float p = 1.0f, s = 0.0f, g = 3.0f;
  AdagradStep step;
  step.initial_sum = 7.0;
  step.rate_divisor = 2.0;
  step.segments = {{&p, {&s}, &g, nullptr, 1, 1.0, 0.0}};
  adagrad(*q, step);
  EXPECT_EQ(s, 16.0f);
  EXPECT_FLOAT_EQ(p, 1.0f - 0.5f * 3.0f / 4.0f);
}

}  // namespace
}  // namespace tessera::kernels::test
