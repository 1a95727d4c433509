#include "optimizers/one_bit.hpp"

#include <utility>

#include "tessera/kernels/optimizer/elementwise_update.hpp"
#include "tessera/optim/compression.hpp"

namespace tessera::optim::detail {
namespace {

using Range = HyperparameterRule::Range;

std::vector<HyperparameterRule> rules() {
  auto out = adam_rules("added to the root of the mean square");
  out.push_back({"freeze_step", 100000.0, Range::positive, "last step without compression"});
  return out;
}

std::vector<StateSpec> states(OptimizerSpec const&) {
  return with_errors({{"exp_avg"}, {"exp_avg_sq"}});
}

/// States by their places in the list.
enum State : std::size_t { exp_avg, exp_avg_sq, worker_error };

class OneBitAdam final : public Optimizer, public Compression {
 public:
  explicit OneBitAdam(OptimizerSpec const& spec) : spec_(spec) {}

  OptimizerSpec const& spec() const override { return spec_; }

  /// The warm-up: Adam without bias correction.
  void update(memory::Queue& queue, Segments const& segments,
              StepControl const& control) const override {
    if (segments.list.empty()) return;
    auto step = step_of<kernels::AdamWStep>(with_states(segments, {exp_avg, exp_avg_sq}), control);
    step.beta2 = spec_.value("beta2");
    kernels::adamw(queue, step);
  }

  StepCommunication communication(std::int64_t step) const override {
    bool const compresses = static_cast<double>(step) > spec_.value("freeze_step");
    return {.reduces_gradients = !compresses, .phase = compresses ? "compressed" : "warm-up"};
  }

  void advance(memory::Queue& queue, Segments const& segments,
               StepControl const& control) const override {
    auto parts = with_states(segments, {exp_avg, worker_error});
    for (auto& s : parts.list) s.weights_out = nullptr;
    kernels::one_bit_momentum(queue, step_of<kernels::OneBitAdamStep>(parts, control));
  }
  void complete(memory::Queue& queue, Segments const& segments, StepControl const& control,
                Directions const& exchanged) const override {
    auto const parts = with_gradients(with_states(segments, {exp_avg, exp_avg_sq}), exchanged);
    kernels::one_bit_adam(queue, step_of<kernels::OneBitAdamStep>(parts, control));
  }

 private:
  template <class Step>
  Step step_of(Segments const& segments, StepControl const& control) const {
    Step step;
    step.beta1 = spec_.value("beta1");
    step.epsilon = spec_.value("eps");
    set_segments(step, spec_, segments, control);
    return step;
  }

  OptimizerSpec spec_;
};

std::unique_ptr<Optimizer> make(OptimizerSpec const& spec) {
  return std::make_unique<OneBitAdam>(spec);
}

}  // namespace

std::vector<StateSpec> with_errors(std::vector<StateSpec> states) {
  states.push_back({.name = worker_error_name, .copies = Copies::own});
  states.push_back({.name = server_error_name, .copies = Copies::sharded});
  return states;
}

Segments with_states(Segments segments, std::vector<std::size_t> const& kept) {
  for (auto& s : segments.list) {
    std::vector<void*> states;
    for (std::size_t const k : kept) states.push_back(s.states[k]);
    s.states = std::move(states);
  }
  return segments;
}

Segments with_gradients(Segments segments, Directions const& exchanged) {
  segments.gradient_dtype = Dtype::fp32;
  for (std::size_t i = 0; i < segments.list.size(); ++i) segments.list[i].gradient = exchanged[i];
  return parameter_segments(segments);
}

OptimizerEntry one_bit_adam_entry() {
  return {
      {"OneBitAdam", {}, rules(), {"exp_avg", "exp_avg_sq", worker_error_name, server_error_name}},
      states,
      make};
}

}  // namespace tessera::optim::detail
