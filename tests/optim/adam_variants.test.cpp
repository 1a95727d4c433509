#include "optimizers/table.hpp"

#include <gtest/gtest.h>

#include "trajectory.hpp"
#include "update_by.hpp"

namespace tessera::optim::test {
namespace {

TEST(AdamVariants, EqualTorch) {
  for (char const* algorithm : {"Adamax", "NAdam", "RAdam"}) expect_trajectories(algorithm);
}

TEST(AdamVariants, BothTraversalsGiveTheSameBits) {
  expect_optimizer_on_both_sides(make_spec("Adamax", {{"beta2", 0.5}}));
  for (char const* algorithm : {"NAdam", "RAdam"})
    for (double const decoupled : {0.0, 1.0})
      for (std::int64_t const t : {1, 9})  // before and after RAdam's variance is tractable
        expect_optimizer_on_both_sides(
            make_spec(algorithm, {{"decoupled_weight_decay", decoupled}}), t);
}

TEST(AdamVariants, RefuseStepZero) {
  float p = 1.0f;
  kernels::test::ElementwiseUpdate step;
  step.segments = {{&p, {&p, &p}, &p, nullptr, 1, 1.0, 0.0}};
  EXPECT_THROW(update_by(make_spec("Adamax"), 0, *memory::make_inline_queue("compute"), step),
               InternalError);
}

}  // namespace
}  // namespace tessera::optim::test
