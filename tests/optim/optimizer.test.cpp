/// make_spec() and make_optimizer(), and updates through the interface.
#include "tessera/optim/optimizer.hpp"

#include <gtest/gtest.h>

#include <cmath>

#include "tessera/core/error.hpp"

namespace tessera::optim {
namespace {

using Floats = std::vector<float>;

TEST(MakeSpec, FillsDefaultsAndNamesTheStates) {
  auto const adamw = make_spec("AdamW", {{"beta2", 0.95}});
  EXPECT_EQ(adamw.value("beta1"), 0.9);
  EXPECT_EQ(adamw.value("beta2"), 0.95);
  EXPECT_EQ(adamw.state_names(), (std::vector<std::string>{"fp32", "exp_avg", "exp_avg_sq"}));
  EXPECT_EQ(make_spec("Adam").states, adamw.states);
  EXPECT_EQ(make_spec("SGD").state_names(), (std::vector<std::string>{"fp32"}));
  EXPECT_EQ(make_spec("SGD", {{"momentum", 0.9}}).state_names(),
            (std::vector<std::string>{"fp32", "momentum_buffer"}));
}

TEST(Optimizers, AreListedForConfigurations) {
  std::vector<std::string> names;
  for (auto const& info : optimizers()) names.emplace_back(info.algorithm);
  EXPECT_EQ(names, (std::vector<std::string>{"AdamW", "Adam", "SGD", "Lion", "Adagrad", "RMSprop",
                                             "Adamax", "NAdam", "RAdam", "Lamb", "OneBitAdam",
                                             "OneBitLamb", "Adafactor", "Muon", "AdamW8bit",
                                             "Lion8bit", "RMSprop8bit"}));
  EXPECT_EQ(optimizer_info("SGD").hugging_face_names, (std::vector<std::string>{"sgd"}));
  for (auto const& info : optimizers())
    for (auto const& rule : info.hyperparameters)
      EXPECT_EQ(make_spec(info.algorithm).value(rule.name), rule.value);
}

TEST(MakeSpec, RefusesWhatNoOptimizerAccepts) {
  auto const refuses = [](std::string const& algorithm, std::vector<Hyperparameter> const& values,
                          std::string const& part) {
    try {
      (void)make_spec(algorithm, values);
      ADD_FAILURE() << part << " was accepted";
    } catch (ConfigError const& error) {
      EXPECT_NE(std::string(error.what()).find(part), std::string::npos) << error.what();
    }
  };
  refuses("Shampoo", {}, "Shampoo");
  refuses("AdamW", {{"momentum", 0.9}}, "momentum");
  refuses("AdamW", {{"beta1", 1.0}}, "beta1 is 1");
  refuses("AdamW", {{"eps", 0.0}}, "eps is 0");
  refuses("AdamW", {{"weight_decay", -1.0}}, "weight_decay is -1");
  refuses("SGD", {{"momentum", -0.5}}, "momentum is -0.5");
  refuses("SGD", {{"nesterov", 1.0}}, "momentum 0");
  refuses("SGD", {{"nesterov", 1.0}, {"momentum", 0.9}, {"dampening", 0.1}}, "dampening 0.1");
  auto spec = make_spec("SGD");
  spec.states = {{"velocity"}};
  EXPECT_THROW((void)make_optimizer(spec), InternalError);
}

struct Arrays {
  Floats p{1.0f, -2.0f, 3.0f}, a{0.5f, 0.5f, 0.5f}, b{0.1f, 0.2f, 0.3f}, g{0.3f, 0.2f, -0.1f};
};

Segments segments_of(Arrays& x, std::size_t states, std::size_t group) {
  Segment s;
  s.master = x.p.data();
  if (states > 0) s.states.push_back(x.a.data());
  if (states > 1) s.states.push_back(x.b.data());
  s.gradient = x.g.data();
  s.numel = 3;
  s.group = group;
  return {{s}, Dtype::fp32, Dtype::fp32};
}

/// Bias corrections of step 3 and the decay of the group, by the formula in double.
TEST(OptimizerUpdate, OfAdamWTakesTheGroupsDecay) {
  auto const queue = memory::make_inline_queue("compute");
  for (char const* algorithm : {"AdamW", "Adam"})
    for (std::size_t group : {0u, 1u}) {
      auto const optimizer = make_optimizer(make_spec(algorithm, {{"weight_decay", 0.25}}));
      Arrays got, start;
      kernels::GradientControl const control{0.5, 0};
      optimizer->update(*queue, segments_of(got, 2, group), {3, 0.1, &control});
      double const decay = group == 0 ? 0.25 : 0.0;
      bool const is_l2 = std::string(algorithm) == "Adam";
      for (std::size_t i = 0; i < 3; ++i) {
        double const g = 0.5 * start.g[i] + (is_l2 ? decay * start.p[i] : 0.0),
                     m = 0.9 * start.a[i] + 0.1 * g, v = 0.999 * start.b[i] + 0.001 * g * g;
        double const corrected = std::sqrt(v / (1.0 - 0.999 * 0.999 * 0.999)) + 1e-8;
        EXPECT_FLOAT_EQ(got.p[i], start.p[i] * (is_l2 ? 1.0 : 1.0 - 0.1 * decay) -
                                      0.1 * m / (1.0 - 0.9 * 0.9 * 0.9) / corrected)
            << algorithm << " group " << group;
        EXPECT_FLOAT_EQ(got.a[i], m);
        EXPECT_FLOAT_EQ(got.b[i], v);
      }
      EXPECT_NE(got.p, start.p);
    }
}

/// A step by hand: b = g in the first step, then 0.5 b + g; p falls by lr b.
TEST(OptimizerUpdate, OfSgdFollowsItsFormula) {
  auto const queue = memory::make_inline_queue("compute");
  auto const optimizer = make_optimizer(make_spec("SGD", {{"momentum", 0.5}, {"dampening", 0.25}}));
  Arrays x;
  x.a = {0.0f, 0.0f, 0.0f};
  kernels::GradientControl const control{1.0, 0}, skip{1.0, 1};
  optimizer->update(*queue, segments_of(x, 1, 0), {1, 1.0, &control});
  EXPECT_FLOAT_EQ(x.a[0], 0.3f);
  EXPECT_FLOAT_EQ(x.p[0], 0.7f);
  optimizer->update(*queue, segments_of(x, 1, 0), {2, 1.0, &skip});
  EXPECT_FLOAT_EQ(x.p[0], 0.7f);
  optimizer->update(*queue, segments_of(x, 1, 0), {2, 1.0, &control});
  EXPECT_FLOAT_EQ(x.a[0], 0.375f);
  EXPECT_FLOAT_EQ(x.p[0], 0.325f);

  Arrays plain;
  make_optimizer(make_spec("SGD"))->update(*queue, segments_of(plain, 0, 0), {1, 1.0, &control});
  EXPECT_FLOAT_EQ(plain.p[0], 0.7f);
}

}  // namespace
}  // namespace tessera::optim
