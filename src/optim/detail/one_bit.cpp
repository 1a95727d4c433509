#include "detail/one_bit.hpp"

#include <utility>

#include "tessera/kernels/optimizer/adamw.hpp"
#include "tessera/kernels/optimizer/one_bit.hpp"
#include "tessera/optim/compression.hpp"

namespace tessera::optim::detail {
namespace {

using Range = HyperparameterRule::Range;

std::vector<HyperparameterRule> one_bit_adam_rules() {
  auto out = one_bit_rules();
  out.push_back({"freeze_step", 100000.0, Range::positive, "last step without compression"});
  return out;
}

std::vector<StateSpec> one_bit_adam_states(OptimizerSpec const&) {
  return with_errors({{"exp_avg"}, {"exp_avg_sq"}});
}

/// States by their places in the list.
enum State : std::size_t { exp_avg, exp_avg_sq, worker_error };

class OneBitAdam final : public Optimizer, public Compression {
 public:
  explicit OneBitAdam(OptimizerSpec const& spec) : spec_(spec) {}

  OptimizerSpec const& spec() const override { return spec_; }

  void update(memory::Queue& queue, Segments const& segments,
              StepControl const& control) const override {
    update_as_adam(queue, spec_, segments, control);
  }

  StepCommunication communication(std::int64_t step) const override {
    bool const compresses = static_cast<double>(step) > spec_.value("freeze_step");
    return {.reduces_gradients = !compresses,
            .exchanges = compresses,
            .phase = compresses ? "compressed" : "warm-up"};
  }

  void advance(memory::Queue& queue, Segments const& segments,
               StepControl const& control) const override {
    auto parts = with_states(segments, {exp_avg, worker_error});
    for (auto& s : parts.list) s.weights_out = nullptr;
    kernels::one_bit_momentum(queue, step_of(parts, control));
  }
  void complete(memory::Queue& queue, Segments const& segments, StepControl const& control,
                Exchange const& exchange) const override {
    kernels::one_bit_adam(
        queue,
        step_of(with_gradients(with_states(segments, {exp_avg, exp_avg_sq}), exchange), control));
  }

 private:
  kernels::OneBitAdamStep step_of(Segments const& segments, StepControl const& control) const {
    return one_bit_step<kernels::OneBitAdamStep>(spec_, segments, control);
  }

  OptimizerSpec spec_;
};

std::unique_ptr<Optimizer> make_one_bit_adam(OptimizerSpec const& spec) {
  return std::make_unique<OneBitAdam>(spec);
}

}  // namespace

std::vector<HyperparameterRule> one_bit_rules() {
  return adam_rules("added to the root of the mean square");
}

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

Segments with_gradients(Segments segments, Exchange const& exchange) {
  segments.gradient_dtype = Dtype::fp32;
  for (std::size_t i = 0; i < segments.list.size(); ++i)
    segments.list[i].gradient = exchange.values[i];
  return parameter_segments(segments);
}

void update_as_adam(memory::Queue& queue, OptimizerSpec const& spec, Segments const& segments,
                    StepControl const& control) {
  if (segments.list.empty()) return;
  auto step = one_bit_step<kernels::AdamWStep>(spec, with_states(segments, {0, 1}), control);
  step.beta2 = spec.value("beta2");
  kernels::adamw(queue, step);
}

OptimizerEntry one_bit_adam_entry() {
  return {{"OneBitAdam",
           {},
           one_bit_adam_rules(),
           {"exp_avg", "exp_avg_sq", worker_error_name, server_error_name}},
          one_bit_adam_states,
          make_one_bit_adam};
}

}  // namespace tessera::optim::detail
