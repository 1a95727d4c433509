#pragma once
/// The updates of an optimizer against the trajectories that tests/oracles/optimizers.py has
/// stored.

#include <gtest/gtest.h>

#include <cmath>
#include <string>
#include <vector>

#include "tessera/core/config_tree.hpp"
#include "tessera/optim/matrix_optimizer.hpp"
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
    if ((name == "beta1" || name == "beta2") && stored.find("betas"))
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

/// Values that a state keeps for a parameter of @p shape.
inline std::size_t state_numel(std::vector<std::int64_t> const& shape, Extent extent) {
  std::int64_t columns = 1;
  for (std::size_t i = 1; i < shape.size(); ++i) columns *= shape[i];
  if (extent == Extent::per_row) return static_cast<std::size_t>(shape[0]);
  return static_cast<std::size_t>(extent == Extent::per_column ? columns : shape[0] * columns);
}

/// One update of the elements of a parameter, as two segments that begin and end at @p border.
struct Halves {
  Optimizer const& optimizer;
  memory::Queue& queue;
  std::vector<std::int64_t> shape;
  std::size_t border;

  void update(Floats& weights, std::vector<Floats>& states, Floats const& gradient,
              StepControl const& control) const {
    CompleteParameter complete{shape, {}, {}};
    for (std::size_t k = 0; k < states.size(); ++k)
      complete.states.push_back(is_elementwise(k) ? nullptr : states[k].data());
    auto const segment = [&](std::size_t begin, std::size_t end) {
      Segment s;
      s.master = weights.data() + begin;
      for (std::size_t k = 0; k < states.size(); ++k)
        s.states.push_back(is_elementwise(k) ? states[k].data() + begin : nullptr);
      s.gradient = gradient.data() + begin;
      s.numel = static_cast<std::int64_t>(end - begin);
      auto const numel = static_cast<std::int64_t>(weights.size());
      s.parameters = {{shape, numel, static_cast<std::int64_t>(begin), 0, s.numel}};
      s.parameter_states = {complete.states};
      return Segments{{s}, Dtype::fp32, Dtype::fp32};
    };
    auto const first = segment(0, border), second = segment(border, weights.size());
    if (auto const* summing = dynamic_cast<SummingOptimizer const*>(&optimizer))
      return update_with_sums(*summing, first, second, complete, control);
    if (auto const* matrix = dynamic_cast<MatrixOptimizer const*>(&optimizer))
      return update_with_matrix(*matrix, first, second, control);
    optimizer.update(queue, first, control);
    optimizer.update(queue, second, control);
  }

 private:
  bool is_elementwise(std::size_t state) const {
    return optimizer.spec().states[state].extent == Extent::elementwise;
  }

  void update_with_matrix(MatrixOptimizer const& matrix, Segments const& first,
                          Segments const& second, StepControl const& control) const {
    Floats directions(static_cast<std::size_t>(first.list[0].parameters[0].parameter_numel));
    Directions const of_first{directions.data()}, of_second{directions.data() + border};
    matrix.advance(queue, first, control, of_first);
    matrix.advance(queue, second, control, of_second);
    if (matrix.takes_matrix(first.list[0].parameters[0])) {
      Floats workspace(static_cast<std::size_t>(matrix.workspace(shape)));
      matrix.complete(queue, directions.data(), shape, workspace.data());
    }
    matrix.update_with(queue, first, control, of_first);
    matrix.update_with(queue, second, control, of_second);
  }

  void update_with_sums(SummingOptimizer const& summing, Segments const& first,
                        Segments const& second, CompleteParameter& complete,
                        StepControl const& control) const {
    std::vector<std::vector<double>> sums;
    ParameterSums places;
    for (int round = 0; round < summing.rounds(); ++round)
      sums.emplace_back(summing.sum_count(round, shape));
    for (auto& of_round : sums) {
      places.of.push_back({{of_round.data()}});
      complete.sums.push_back(of_round.data());
    }
    for (int round = 0; round < summing.rounds(); ++round) {
      auto& mine = sums[static_cast<std::size_t>(round)];
      std::vector<double> others(mine.size());
      ParameterSums of_others = places;
      of_others.of[static_cast<std::size_t>(round)] = {{others.data()}};
      summing.sum(queue, round, first, control, places);
      summing.sum(queue, round, second, control, of_others);
      for (std::size_t k = 0; k < mine.size(); ++k) mine[k] += others[k];
      summing.update_states(queue, round, {complete}, control);
    }
    summing.update_with(queue, first, control, places);
    summing.update_with(queue, second, control, places);
  }
};

/// A case on two ranks' worth of segments.
inline void expect_trajectory(ConfigTree const& oracle, ConfigTree const& stored) {
  auto const queue = memory::make_inline_queue("compute");
  auto const optimizer = make_optimizer(spec_of(stored));
  Floats weights = floats_of(oracle.at("start"));
  std::vector<std::int64_t> shape{static_cast<std::int64_t>(weights.size())};
  if (auto const* given = stored.find("shape")) {
    shape.clear();
    for (auto const& n : given->as_array()) shape.push_back(n.as_int());
  }
  std::vector<Floats> states;
  for (auto const& state : optimizer->spec().states)
    states.emplace_back(state_numel(shape, state.extent), 0.0f);
  std::int64_t t = 0;
  kernels::GradientControl const control{0.5, 0};
  for (auto const& row : oracle.at("gradients").as_array()) {
    Floats gradient = floats_of(row);
    for (auto& g : gradient) g *= 2.0f;  // the factor undoes it
    Halves{*optimizer, *queue, shape, weights.size() / 3}.update(
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
inline void expect_trajectories(std::string const& algorithm,
                                std::string const& file = "optimizers.json") {
  auto const oracle = ConfigTree::read(std::string(TESSERA_TEST_DATA) + "/oracles/" + file);
  int cases = 0;
  for (auto const& stored : oracle.at("cases").as_array())
    if (stored.at("algorithm").as_string() == algorithm) ++cases, expect_trajectory(oracle, stored);
  EXPECT_GE(cases, 2);
}

}  // namespace tessera::optim::test
