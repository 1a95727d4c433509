#include "optimizers/one_bit.hpp"

#include <gtest/gtest.h>

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
  EXPECT_NE(trained("AdamW", {}), adam);
  EXPECT_EQ(trained("OneBitLamb", {}), trained("Lamb", {{"bias_correction", 0.0}}));
}

}  // namespace
}  // namespace tessera::optim::test
