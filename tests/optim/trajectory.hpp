#pragma once
/// The updates of an optimizer against the trajectories that tests/oracles/optimizers.py has
/// stored.

#include <gtest/gtest.h>

#include <cmath>
#include <string>
#include <vector>

#include "tessera/core/config_tree.hpp"
#include "tessera/optim/summing_optimizer.hpp"

namespace tessera::optim::test {

using Floats = std::vector<float>;

inline Floats floats_of(ConfigTree const& array) {
  Floats out;
  for (auto const& x : array.as_array()) out.push_back(static_cast<float>(x.as_double()));
  return out;
}

/// The hyperparameters of a stored case.
inline OptimizerSpec spec_of(ConfigTree const& stored) {
  std::string const algorithm = stored.at("algorithm").as_string();
  std::vector<Hyperparameter> values;
  for (auto const& rule : optimizer_info(algorithm).hyperparameters) {
    std::string const name = rule.name;
    if (name == "beta1" || name == "beta2")
      values.push_back({name, stored.at("betas").as_array()[name == "beta2"].as_double()});
    else if (auto const* value = stored.find(name))
      values.push_back(
          {name, value->is_bool() ? (value->as_bool() ? 1.0 : 0.0) : value->as_double()});
  }
  return make_spec(algorithm, values, one_group());
}

/// Both sides compute in fp32; they may differ by single roundings in each step.
inline void expect_near(Floats const& got, Floats const& want, std::string const& what) {
  ASSERT_EQ(got.size(), want.size()) << what;
  for (std::size_t i = 0; i < got.size(); ++i)
    EXPECT_NEAR(got[i], want[i], 2e-6 * std::abs(want[i]) + 2e-7) << what << " of element " << i;
}

/// One update of the elements of a parameter, as two segments that begin and end at @p border.
struct Halves {
  Optimizer const& optimizer;
  memory::Queue& queue;
  std::size_t border;

  void update(Floats& weights, std::vector<Floats>& states, Floats const& gradient,
              StepControl const& control) const {
    auto const segment = [&](std::size_t begin, std::size_t end) {
      Segment s;
      s.master = weights.data() + begin;
      for (auto& state : states) s.states.push_back(state.data() + begin);
      s.gradient = gradient.data() + begin;
      s.numel = static_cast<std::int64_t>(end - begin);
      auto const numel = static_cast<std::int64_t>(weights.size());
      s.parameters = {{{numel}, numel, static_cast<std::int64_t>(begin), 0, s.numel}};
      return Segments{{s}, Dtype::fp32, Dtype::fp32};
    };
    auto const first = segment(0, border), second = segment(border, weights.size());
    auto const* summing = dynamic_cast<SummingOptimizer const*>(&optimizer);
    if (!summing) {
      optimizer.update(queue, first, control);
      optimizer.update(queue, second, control);
      return;
    }
    auto const count = static_cast<std::size_t>(summing->sums_per_parameter());
    std::vector<double> sums(count, -1.0), others(count, -1.0);
    summing->sum(queue, first, control, {{{sums.data()}}});
    summing->sum(queue, second, control, {{{others.data()}}});
    for (std::size_t k = 0; k < count; ++k) sums[k] += others[k];
    summing->update_with(queue, first, control, {{{sums.data()}}});
    summing->update_with(queue, second, control, {{{sums.data()}}});
  }
};

/// A case on two ranks' worth of segments.
inline void expect_trajectory(ConfigTree const& oracle, ConfigTree const& stored) {
  auto const queue = memory::make_inline_queue("compute");
  auto const optimizer = make_optimizer(spec_of(stored));
  Floats weights = floats_of(oracle.at("start"));
  std::vector<Floats> states(optimizer->spec().states.size(), Floats(weights.size(), 0.0f));
  std::int64_t t = 0;
  kernels::GradientControl const control{0.5, 0};
  for (auto const& row : oracle.at("gradients").as_array()) {
    Floats gradient = floats_of(row);
    for (auto& g : gradient) g *= 2.0f;  // the factor undoes it
    Halves{*optimizer, *queue, weights.size() / 3}.update(
        weights, states, gradient, {++t, stored.at("lr").as_double(), &control});
  }
  std::string const name = stored.at("algorithm").as_string();
  expect_near(weights, floats_of(stored.at("weight")), name + " weights");
  for (std::size_t k = 0; k < states.size(); ++k) {
    auto const& state = optimizer->spec().states[k].name;
    expect_near(states[k], floats_of(stored.at("states").at(state)), name + " " + state);
  }
}

/// All stored cases of @p algorithm.
inline void expect_trajectories(std::string const& algorithm) {
  auto const oracle = ConfigTree::read(std::string(TESSERA_TEST_DATA) + "/oracles/optimizers.json");
  int cases = 0;
  for (auto const& stored : oracle.at("cases").as_array())
    if (stored.at("algorithm").as_string() == algorithm) ++cases, expect_trajectory(oracle, stored);
  EXPECT_GE(cases, 2);
}

}  // namespace tessera::optim::test
