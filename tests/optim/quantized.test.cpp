#include "optimizers/table.hpp"

#include <gtest/gtest.h>

#include "quantized_case.hpp"

namespace tessera::optim::test {
namespace {

Floats every(Floats const& values, std::size_t stride) {
  Floats out;
  for (std::size_t i = 0; i < values.size(); i += stride) out.push_back(values[i]);
  return out;
}

/// 15 steps of bitsandbytes on the processor.
TEST(Quantized, EqualsBitsandbytes) {
  auto const oracle = quantized_oracle();
  auto const stride = static_cast<std::size_t>(oracle.at("stride").as_int());
  for (auto const& stored : oracle.at("cases").as_array()) {
    double const rate = stored.at("lr").as_double();
    QuantizedParameter parameter(spec_of(stored), oracle.at("numel").as_int());
    for (std::int64_t t = 1; t <= oracle.at("steps").as_int(); ++t) {
      Floats gradients;
      for (std::size_t i = 0; i < parameter.weights.size(); ++i)
        gradients.push_back(quantized_gradient(static_cast<std::int64_t>(i), t));
      parameter.step(t, rate, gradients);
    }
    std::string const name = stored.at("algorithm").as_string();
    expect_close(every(parameter.weights, stride), floats_of(stored.at("weight")), rate, name);
    for (std::size_t k = 0; k < parameter.codes.size(); ++k) {
      auto const& state = parameter.optimizer->spec().states[k].name;
      auto const want = floats_of(stored.at("states").at(state));
      auto const absmax = floats_of(stored.at("states").at(absmax_state(state).name));
      expect_near(parameter.absmax[k], absmax, name + " absmax");
      expect_close(every(parameter.values(k), stride), want, 0.02, name + " " + state);
    }
  }
}

/// A parameter with fp32 states takes the steps of the optimizer without codes.
TEST(Quantized, UpdatesFp32StatesOfSmallParameters) {
  auto const queue = memory::make_inline_queue("compute");
  std::vector<Hyperparameter> const values{{"weight_decay", 0.1}};
  auto const coded = make_optimizer(make_spec("AdamW8bit", values, one_group())),
             plain = make_optimizer(make_spec("AdamW", values, one_group()));
  Floats const gradient{0.5f, -0.25f, 1.0f};
  Floats weights[2], m[2], v[2];
  for (int k : {0, 1}) {
    weights[k] = {1.0f, 2.0f, -3.0f};
    m[k] = v[k] = Floats(3);
    Segment s;
    s.master = weights[k].data();
    s.gradient = gradient.data();
    s.numel = 3;
    s.parameters = {{{3}, 3, 0, 0, 3}};
    std::vector<void*> const states{m[k].data(), v[k].data()};
    float unused = 0.0f;
    if (k == 0) s.states = states;
    if (k == 1) s.states.resize(4), s.parameter_states = {{states[0], states[1], &unused, &unused}};
    (k == 0 ? plain : coded)->update(*queue, {{s}, Dtype::fp32, Dtype::fp32}, {1, 0.01, nullptr});
  }
  EXPECT_EQ(weights[0], weights[1]);
  EXPECT_EQ(m[0], m[1]);
  EXPECT_EQ(v[0], v[1]);
  EXPECT_NE(weights[0][0], 1.0f);
}

}  // namespace
}  // namespace tessera::optim::test
