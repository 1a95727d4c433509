#pragma once
/// The updates of an optimizer against the trajectories that tests/oracles/optimizers.py has
/// stored.

#include <gtest/gtest.h>

#include <cmath>
#include <string>
#include <vector>

#include "tessera/core/config_tree.hpp"
#include "tessera/optim/optimizer.hpp"

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

/// A case: all weights as one segment.
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
    Segment s;
    s.master = weights.data();
    for (auto& state : states) s.states.push_back(state.data());
    s.gradient = gradient.data();
    s.numel = static_cast<std::int64_t>(weights.size());
    optimizer->update(*queue, {{s}, Dtype::fp32, Dtype::fp32},
                      {++t, stored.at("lr").as_double(), &control});
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
