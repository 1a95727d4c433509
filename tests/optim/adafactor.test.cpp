#include "optimizers/table.hpp"

#include <gtest/gtest.h>

#include "tessera/core/error.hpp"
#include "trajectory.hpp"

namespace tessera::optim::test {
namespace {

TEST(Adafactor, EqualsTransformers) { expect_trajectories("Adafactor", "adafactor.json"); }

TEST(Adafactor, KeepsOneValuePerRowAndColumn) {
  auto const spec = make_spec("Adafactor");
  EXPECT_EQ(spec.state_names(),
            (std::vector<std::string>{"fp32", "exp_avg_sq_row", "exp_avg_sq_col"}));
  EXPECT_EQ(make_spec("Adafactor", {{"beta1", 0.9}}).states[0].name, "exp_avg");
  EXPECT_EQ(spec.states[1].extent, Extent::per_column);
}

TEST(Adafactor, RefusesWarmupWithoutRelativeStep) {
  EXPECT_THROW((void)make_spec("Adafactor", {{"warmup_init", 1.0}}), ConfigError);
  EXPECT_THROW((void)make_spec("Adafactor", {{"decay_rate", 0.8}}), ConfigError);
}

/// Infinite gradients enter the sums, but neither weights nor means.
TEST(Adafactor, ASkippedStepChangesNothing) {
  auto const queue = memory::make_inline_queue("compute");
  auto const optimizer = make_optimizer(make_spec("Adafactor"));
  Floats weights{1.0f, 2.0f, 3.0f, 4.0f};
  std::vector<Floats> states{{0.5f, 0.25f}, {1.0f, 2.0f}};
  auto const before = states;
  kernels::GradientControl const skip{1.0, 1};
  Halves{*optimizer, *queue, {2, 2}, 1}.update(weights, states, {INFINITY, 1.0f, 1.0f, NAN},
                                               {3, 0.1, &skip});
  EXPECT_EQ(states, before);
  EXPECT_EQ(weights, (Floats{1.0f, 2.0f, 3.0f, 4.0f}));
}

}  // namespace
}  // namespace tessera::optim::test
