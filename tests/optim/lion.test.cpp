#include "optimizers/table.hpp"

#include <gtest/gtest.h>

#include "trajectory.hpp"
#include "update_by.hpp"

namespace tessera::optim::test {
namespace {

TEST(Lion, EqualsThePublishedProgram) { expect_trajectories("Lion"); }

TEST(Lion, BothTraversalsGiveTheSameBits) { expect_optimizer_on_both_sides(make_spec("Lion")); }

TEST(Lion, AZeroSumOnlyDecays) {
  auto const q = memory::make_inline_queue("compute");
  float p[] = {2.0f, 2.0f}, m[] = {0.0f, 0.0f}, g[] = {0.0f, -1e-30f};
  kernels::test::ElementwiseUpdate step;
  step.segments = {{p, {m}, g, nullptr, 2, 0.5, 0.5}};
  update_by(make_spec("Lion"), 1, *q, step);
  EXPECT_EQ(p[0], 1.5f);
  EXPECT_EQ(p[1], 2.0f);
}

}  // namespace
}  // namespace tessera::optim::test
