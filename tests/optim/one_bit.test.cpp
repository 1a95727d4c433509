#include "detail/one_bit.hpp"

#include <gtest/gtest.h>

#include "tessera/optim/last_step.hpp"
#include "trajectory.hpp"

namespace tessera::optim::test {
namespace {

/// The phases before compression are Adam without bias correction.
TEST(OneBit, WarmUpIsAdam) {
  auto const queue = memory::make_inline_queue("compute");
  auto const trained = [&](std::string const& algorithm, std::vector<Hyperparameter> values) {
    values.insert(values.end(), {{"beta2", 0.95}, {"weight_decay", 0.1}});
    auto const optimizer = make_optimizer(make_spec(algorithm, values));
    Floats weights{1.0f, -2.0f, 3.0f};
    std::vector<Floats> states(optimizer->spec().states.size(), Floats(3));
    kernels::GradientControl const control;
    for (std::int64_t t = 1; t <= 5; ++t)
      Halves{*optimizer, *queue, {3}, 1}.update(
          weights, states, {0.1f, static_cast<float>(t), -2.0f}, {t, 0.1, &control});
    return weights;
  };
  auto const adam = trained("AdamW", {{"bias_correction", 0.0}});
  EXPECT_EQ(trained("OneBitAdam", {}), adam);
  EXPECT_EQ(trained("ZeroOneAdam", {}), adam);
  EXPECT_NE(trained("AdamW", {}), adam);
  EXPECT_EQ(trained("OneBitLamb", {}), trained("Lamb", {{"bias_correction", 0.0}}));
}

TEST(OneBit, EndsWhereCompressionBegins) {
  auto const expect_last = [](OptimizerSpec const& spec, std::int64_t step, char const* parameter) {
    auto const last = last_step(spec);
    ASSERT_TRUE(last);
    EXPECT_EQ(last->step, step);
    EXPECT_EQ(last->parameter, parameter);
  };
  EXPECT_FALSE(last_step(make_spec("OneBitAdam", {{"freeze_step", 400.0}})));
  expect_last(make_spec("OneBitLamb"), 100000, "freeze_step");
  expect_last(make_spec("ZeroOneAdam"), 16, "var_update_scaler");
  expect_last(make_spec("ZeroOneAdam", {{"var_freeze_step", 4.0}}), 4, "var_freeze_step");
  EXPECT_FALSE(last_step(make_spec("AdamW")));
}

}  // namespace
}  // namespace tessera::optim::test
