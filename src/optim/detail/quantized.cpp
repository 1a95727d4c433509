#include "detail/optimizer_table.hpp"

#include "detail/elementwise.hpp"
#include "tessera/kernels/optimizer/elementwise_update.hpp"

namespace tessera::optim::detail {
namespace {

using Range = HyperparameterRule::Range;

constexpr char const* not_in_deepspeed =
    "DeepSpeed's JSON has no name for it; remove the section and use --optim";

/// The states in codes, then the largest magnitudes of their chunks.
std::vector<StateSpec> with_absmax(std::vector<StateSpec> quantized) {
  auto states = quantized;
  for (auto const& state : quantized) states.push_back(absmax_state(state.name));
  return states;
}

std::vector<std::string> names_of(std::vector<StateSpec> const& states) {
  std::vector<std::string> names;
  for (auto const& state : states) names.push_back(state.name);
  return names;
}

/// Divides the runs by how their states are kept.
/// @tparam values Step(OptimizerSpec const&, StepControl const&): the kernels' values of a step
template <auto values, auto kernel, auto quantized_kernel>
class Quantized final : public Optimizer {
 public:
  explicit Quantized(OptimizerSpec const& spec)
      : spec_(spec), quantized_count_(spec.states.size() / 2) {}

  OptimizerSpec const& spec() const override { return spec_; }

  void update(memory::Queue& queue, Segments const& segments,
              StepControl const& control) const override {
    Segments plain{{}, segments.gradient_dtype, segments.weights_dtype}, quantized = plain;
    for (auto& run : parameter_segments(segments, spec_.states).list) {
      bool const has_values = run.parameter_states[0][0] != nullptr;
      if (has_values) run.states = run.parameter_states[0], run.states.resize(quantized_count_);
      (has_values ? plain : quantized).list.push_back(std::move(run));
    }
    auto const step = values(spec_, control);
    if (!plain.list.empty()) {
      auto of_plain = step;
      set_segments(of_plain, spec_, plain, control);
      kernel(queue, of_plain);
    }
    if (!quantized.list.empty()) update_quantized(queue, step, quantized, control);
  }

 private:
  template <class Step>
  void update_quantized(memory::Queue& queue, Step step, Segments const& segments,
                        StepControl const& control) const {
    std::vector<kernels::QuantizedSegment> out;
    for (auto const& run : segments.list) {
      auto& s = out.emplace_back();
      s.master = run.master;
      s.gradient = run.gradient;
      s.weights_out = run.weights_out;
      s.numel = run.numel;
      s.learning_rate = control.learning_rate;
      s.weight_decay = spec_.value("weight_decay", run.group);
      for (std::size_t k = 0; k < quantized_count_; ++k)
        s.quantized[k] = {static_cast<std::uint8_t*>(run.states[k]),
                          static_cast<float*>(run.parameter_states[0][quantized_count_ + k])};
    }
    step.gradient_dtype = segments.gradient_dtype;
    step.weights_dtype = segments.weights_dtype;
    step.control = control.gradients;
    quantized_kernel(queue, step, out);
  }

  OptimizerSpec spec_;
  std::size_t quantized_count_;  ///< states in codes
};

template <auto values, auto kernel, auto quantized_kernel>
std::unique_ptr<Optimizer> make(OptimizerSpec const& spec) {
  return std::make_unique<Quantized<values, kernel, quantized_kernel>>(spec);
}

std::vector<StateSpec> adamw_states(OptimizerSpec const&) {
  return with_absmax({quantized_state("exp_avg", Encoding::signed_codes),
                      quantized_state("exp_avg_sq", Encoding::unsigned_codes)});
}
std::vector<StateSpec> lion_states(OptimizerSpec const&) {
  return with_absmax({quantized_state("exp_avg", Encoding::signed_codes)});
}
/// The squares have signed codes in bitsandbytes, too.
std::vector<StateSpec> rmsprop_states(OptimizerSpec const&) {
  return with_absmax({quantized_state("square_avg", Encoding::signed_codes)});
}

kernels::AdamWStep adamw_values(OptimizerSpec const& spec, StepControl const& control) {
  kernels::AdamWStep step;
  step.beta1 = spec.value("beta1");
  step.beta2 = spec.value("beta2");
  step.epsilon = spec.value("eps");
  step.bias_correction1 = bias_correction(step.beta1, control.step);
  step.bias_correction2 = bias_correction(step.beta2, control.step);
  return step;
}
kernels::LionStep lion_values(OptimizerSpec const& spec, StepControl const&) {
  kernels::LionStep step;
  step.beta1 = spec.value("beta1");
  step.beta2 = spec.value("beta2");
  return step;
}
kernels::RmsPropStep rmsprop_values(OptimizerSpec const& spec, StepControl const&) {
  kernels::RmsPropStep step;
  step.alpha = spec.value("alpha");
  step.epsilon = spec.value("eps");
  return step;
}

OptimizerEntry entry_of(OptimizerEntry like, char const* algorithm, std::vector<std::string> names,
                        std::vector<HyperparameterRule> rules) {
  like.info = {algorithm,
               std::move(names),
               std::move(rules),
               names_of(like.states({})),
               like.info.default_rate,
               not_in_deepspeed};
  return like;
}

}  // namespace

OptimizerEntry adamw_8bit_entry() {
  return entry_of({{}, adamw_states, make<adamw_values, kernels::adamw, kernels::adamw_8bit>},
                  "AdamW8bit", {"adamw_8bit", "adamw_bnb_8bit", "paged_adamw_8bit"},
                  adam_rules("added to the root of the mean square"));
}
OptimizerEntry lion_8bit_entry() {
  return entry_of({{}, lion_states, make<lion_values, kernels::lion, kernels::lion_8bit>},
                  "Lion8bit", {"lion_8bit", "paged_lion_8bit"},
                  {{"beta1", 0.9, Range::unit, "share of the mean in the direction"},
                   {"beta2", 0.99, Range::unit, "decay of the mean of the gradients"},
                   {"weight_decay", 0.0, Range::not_negative, "weight decay"}});
}
OptimizerEntry rmsprop_8bit_entry() {
  return entry_of(
      {{}, rmsprop_states, make<rmsprop_values, kernels::rmsprop, kernels::rmsprop_8bit>},
      "RMSprop8bit", {"rmsprop_bnb_8bit"},
      {{"alpha", 0.99, Range::unit, "decay of the mean of the squared gradients"},
       {"eps", 1e-8, Range::positive, "added to the root of the mean square"},
       {"weight_decay", 0.0, Range::not_negative, "weight decay"}});
}

}  // namespace tessera::optim::detail
