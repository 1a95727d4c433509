#include "optimizers/table.hpp"

#include <gtest/gtest.h>

#include "trajectory.hpp"
#include "update_by.hpp"

namespace tessera::optim::test {
namespace {

TEST(Adagrad, EqualsTorch) { expect_trajectories("Adagrad"); }

TEST(Adagrad, BothTraversalsGiveTheSameBits) {
  expect_optimizer_on_both_sides(make_spec("Adagrad"));
}

TEST(Adagrad, StartsFromTheInitialSumAndDividesLaterRates) {
  auto const q = memory::make_inline_queue("compute");
  auto const spec = make_spec("Adagrad", {{"initial_accumulator_value", 7.0}, {"lr_decay", 1.0}});
  float p = 1.0f, s = 0.0f, g = 3.0f;
  kernels::test::ElementwiseUpdate step;
  step.segments = {{&p, {&s}, &g, nullptr, 1, 1.0, 0.0}};
  update_by(spec, 1, *q, step);
  EXPECT_EQ(s, 16.0f);
  EXPECT_FLOAT_EQ(p, 1.0f - 3.0f / 4.0f);
  update_by(spec, 2, *q, step);
  EXPECT_EQ(s, 25.0f);
  EXPECT_FLOAT_EQ(p, 0.25f - 0.5f * 3.0f / 5.0f);
}

}  // namespace
}  // namespace tessera::optim::test
