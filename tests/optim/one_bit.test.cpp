#include "optimizers/one_bit.hpp"

#include <gtest/gtest.h>

#include "trajectory.hpp"
#include "update_by.hpp"

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

struct OneBitAdam {
  std::unique_ptr<Optimizer> optimizer = make_optimizer(
      make_spec("OneBitAdam", {{"beta1", 0.5}, {"eps", 1.0}, {"weight_decay", 0.5}}));
  Compression const& compression = *compression_of(*optimizer);

  void advance(memory::Queue& q, kernels::test::ElementwiseUpdate const& update) const {
    compression.advance(q, parameters_of(update, {0, 2}, 4), {9, 0.5, update.control});
  }
  void complete(memory::Queue& q, kernels::test::ElementwiseUpdate const& update) const {
    Directions exchanged;
    for (auto const& s : update.segments)
      exchanged.push_back(static_cast<float*>(const_cast<void*>(s.gradient)));
    compression.complete(q, parameters_of(update, {0, 1}, 4), {9, 0.5, update.control}, exchanged);
  }
};

TEST(OneBit, BothTraversalsGiveTheSameBits) {
  OneBitAdam const adam;
  kernels::test::expect_update_on_both_sides(
      [&](memory::Queue& q, auto const& update) { adam.advance(q, update); }, 2, {0});
  kernels::test::expect_update_on_both_sides(
      [&](memory::Queue& q, auto const& update) { adam.complete(q, update); }, 2, {2});
}

TEST(OneBit, MomentumJoinsTheErrorAndTheFrozenVarianceStays) {
  auto const q = memory::make_inline_queue("compute");
  OneBitAdam const adam;
  float p[] = {2.0f}, m[] = {4.0f}, v[] = {4.0f}, e[] = {0.25f}, g[] = {1.0f};
  kernels::GradientControl const control{2.0, 0};
  kernels::test::ElementwiseUpdate step;
  step.control = &control;
  step.segments = {{p, {m, e}, g, nullptr, 1, 0.5, 0.5}};
  adam.advance(*q, step);
  EXPECT_EQ(m[0], 3.0f);
  EXPECT_EQ(e[0], 3.25f);
  EXPECT_EQ(p[0], 2.0f);
  step.segments = {{p, {m, v}, e, nullptr, 1, 0.5, 0.5}};
  adam.complete(*q, step);
  EXPECT_EQ(m[0], 3.25f);
  EXPECT_EQ(v[0], 4.0f);
  EXPECT_FLOAT_EQ(p[0], 2.0f * 0.75f - 0.5f * 3.25f / 3.0f);
}

}  // namespace
}  // namespace tessera::optim::test
