#pragma once
/// Element-wise optimizers with states in 8 bits, as bitsandbytes has them. Parameters that keep
/// fp32 states are updated by the kernel of the optimizer without codes.

#include "optimizer/quantized_update.hpp"
#include "optimizers/elementwise.hpp"

namespace tessera::optim::detail {

/// Enqueues the update of @p runs of one parameter each, which begin with one of its chunks.
template <class Rule>
void update_quantized(memory::Queue& queue, OptimizerSpec const& spec, Segments const& runs,
                      StepControl const& control) {
  if (runs.list.empty()) return;
  RuleStep const step(spec, control);
  kernels::detail::QuantizedStep<Rule> update{Rule::quantized_name, Rule::coefficients(step),
                                              control.gradients,    runs.gradient_dtype,
                                              runs.weights_dtype,   {}};
  for (auto const& s : runs.list) {
    auto& run = update.runs.emplace_back();
    run.master = static_cast<float*>(s.master);
    for (std::size_t k = 0; k < Rule::states; ++k)
      run.states[k] = {static_cast<std::uint8_t*>(s.states[k]),
                       static_cast<float*>(s.parameter_states[0][Rule::states + k])};
    run.gradient = s.gradient;
    run.weights_out = s.weights_out;
    run.numel = s.numel;
    run.rates = Rule::rates(step, spec.value("weight_decay", s.group));
  }
  kernels::detail::launch_quantized(queue, update);
}

/// Divides the runs by how their states are kept.
template <class Rule>
class Quantized final : public Optimizer {
 public:
  explicit Quantized(OptimizerSpec const& spec) : spec_(spec) {}

  OptimizerSpec const& spec() const override { return spec_; }
  void update(memory::Queue& queue, Segments const& segments,
              StepControl const& control) const override {
    Segments plain{{}, segments.gradient_dtype, segments.weights_dtype}, coded = plain;
    for (auto& run : parameter_segments(segments, spec_.states).list) {
      bool const has_values = run.parameter_states[0][0] != nullptr;
      if (has_values) run.states = run.parameter_states[0], run.states.resize(Rule::states);
      (has_values ? plain : coded).list.push_back(std::move(run));
    }
    update_elements<Rule>(queue, spec_, plain, control);
    update_quantized<Rule>(queue, spec_, coded, control);
  }

 private:
  OptimizerSpec spec_;
};

/// The states of a rule in codes, then the largest magnitudes of their chunks.
template <class Rule>
std::vector<StateSpec> quantized_states(OptimizerSpec const&) {
  std::vector<StateSpec> states, absmax;
  for (std::size_t k = 0; k < Rule::states; ++k) {
    bool const is_signed = Rule::maps[k] == kernels::DynamicMap::signed_values;
    states.push_back(quantized_state(
        Rule::state_names[k], is_signed ? Encoding::signed_codes : Encoding::unsigned_codes));
    absmax.push_back(absmax_state(Rule::state_names[k]));
  }
  states.insert(states.end(), absmax.begin(), absmax.end());
  return states;
}

template <class Rule>
OptimizerEntry quantized_entry(OptimizerInfo info) {
  for (auto const& state : quantized_states<Rule>({})) info.states.push_back(state.name);
  info.not_in_deepspeed = "DeepSpeed's JSON has no name for it; remove the section and use --optim";
  return {std::move(info), quantized_states<Rule>, make_as<Quantized<Rule>>};
}

}  // namespace tessera::optim::detail
