#include "optimizers/table.hpp"

#include "optimizers/one_bit.hpp"
#include "optimizers/segments.hpp"
#include "tessera/core/error.hpp"
#include "tessera/kernels/optimizer/lamb.hpp"
#include "tessera/optim/compression.hpp"
#include "tessera/optim/summing_optimizer.hpp"

namespace tessera::optim::detail {
namespace {

using Range = HyperparameterRule::Range;

std::vector<HyperparameterRule> one_bit_lamb_rules() {
  auto out = lamb_rules();
  out.push_back({"freeze_step", 100000.0, Range::positive, "last step without compression"});
  out.push_back({"coeff_beta", 0.9, Range::unit, "decay of the mean of the ratios of the norms"});
  out.push_back({"factor_max", 4.0, Range::positive, "largest factor of this mean afterwards"});
  out.push_back({"factor_min", 0.5, Range::not_negative, "smallest factor of it"});
  out.push_back(
      {"factor_threshold", 0.1, Range::not_negative, "share by which a step changes the factor"});
  return out;
}

std::vector<StateSpec> one_bit_lamb_states(OptimizerSpec const& spec) {
  TESSERA_VALIDATE(spec.value("factor_min") <= spec.value("factor_max"), ConfigError, "optimizer ",
                   spec.algorithm, ": factor_min is ", spec.value("factor_min"),
                   " and factor_max is ", spec.value("factor_max"),
                   "; factor_min must not be larger");
  auto out = lamb_states(spec);
  out.push_back({"exp_avg_sq_fresh"});
  out = with_errors(std::move(out));
  for (char const* name : {"lamb_coeff_freeze", "last_factor", "scaling_coeff"})
    out.push_back({.name = name, .extent = Extent::scalar});
  return out;
}

class OneBitLamb final : public SummingOptimizer, public Compression {
 public:
  explicit OneBitLamb(OptimizerSpec const& spec) : spec_(spec) {}

  OptimizerSpec const& spec() const override { return spec_; }
  std::int64_t sum_count(int, std::vector<std::int64_t> const&) const override {
    return kernels::lamb_sums;
  }

  void sum(memory::Queue& queue, int, Segments const& segments, StepControl const& control,
           ParameterSums const& sums) const override {
    kernels::lamb_norms(
        queue, lamb_step(spec_, with_states(segments, {exp_avg, exp_avg_sq}), control, sums));
  }
  void update_states(memory::Queue& queue, int, std::vector<CompleteParameter> const& parameters,
                     StepControl const& control) const override {
    kernels::LambCoefficients step{{},
                                   spec_.value("coeff_beta"),
                                   spec_.value("min_coeff"),
                                   spec_.value("max_coeff"),
                                   control.gradients};
    for (auto const& p : parameters)
      step.parameters.push_back({p.sums[0], static_cast<float*>(p.states[lamb_coeff_freeze])});
    kernels::lamb_coefficients(queue, step);
  }
  void update_with(memory::Queue& queue, Segments const& segments, StepControl const& control,
                   ParameterSums const& sums) const override {
    kernels::lamb(queue,
                  lamb_step(spec_, with_states(segments, {exp_avg, exp_avg_sq}), control, sums));
  }

  StepCommunication communication(std::int64_t step) const override {
    bool const compresses = step > freeze_step();
    return {.reduces_gradients = !compresses, .phase = compresses ? "compressed" : "warm-up"};
  }
  /// The momentum of a parameter is scaled before the exchange.
  Scales scales() const override { return Scales::per_unit; }

  void advance(memory::Queue& queue, Segments const& segments,
               StepControl const& control) const override {
    auto const step = [&](std::vector<std::size_t> const& kept) {
      auto parts = parameter_segments(with_states(segments, kept));
      for (auto& s : parts.list) s.weights_out = nullptr;
      return step_of(parts, control);
    };
    if (control.step == freeze_step() + 1)
      kernels::one_bit_lamb_begin(queue, step({exp_avg, exp_avg_sq, exp_avg_sq_fresh}));
    kernels::one_bit_lamb_momentum(queue, step({exp_avg, worker_error}));
  }

  void complete(memory::Queue& queue, Segments const& segments, StepControl const& control,
                Directions const& exchanged) const override {
    auto const step = [&](std::vector<std::size_t> const& kept, bool updates_weights) {
      auto parts = with_gradients(with_states(segments, kept), exchanged);
      for (auto& s : parts.list)
        if (!updates_weights) s.weights_out = nullptr;
      return step_of(parts, control);
    };
    kernels::one_bit_lamb_moments(queue, step({exp_avg, exp_avg_sq_fresh}, false));
    kernels::one_bit_lamb_factors(queue, step({exp_avg, exp_avg_sq, exp_avg_sq_fresh}, false));
    kernels::one_bit_lamb(queue, step({exp_avg, exp_avg_sq}, true));
  }

 private:
  /// States by their places in the list.
  enum State : std::size_t {
    exp_avg,
    exp_avg_sq,
    exp_avg_sq_fresh,
    worker_error,
    server_error,
    lamb_coeff_freeze,
    last_factor,
    scaling_coeff
  };

  std::int64_t freeze_step() const { return static_cast<std::int64_t>(spec_.value("freeze_step")); }

  /// @param segments of one parameter each
  kernels::OneBitLambStep step_of(Segments const& segments, StepControl const& control) const {
    kernels::OneBitLambStep step;
    step.beta1 = spec_.value("beta1");
    step.beta2 = spec_.value("beta2");
    step.epsilon = spec_.value("eps");
    step.epsilon_inside_root = spec_.value("eps_inside_sqrt") != 0.0;
    step.factor_min = spec_.value("factor_min");
    step.factor_max = spec_.value("factor_max");
    step.factor_threshold = spec_.value("factor_threshold");
    set_segments(step, spec_, segments, control);
    for (auto const& s : segments.list) {
      auto const& of_parameter = s.parameter_states.at(0);
      auto const value = [&](State k) { return static_cast<float*>(of_parameter[k]); };
      step.parameters.push_back(
          {value(lamb_coeff_freeze), value(last_factor), value(scaling_coeff)});
    }
    return step;
  }

  OptimizerSpec spec_;
};

}  // namespace

OptimizerEntry one_bit_lamb_entry() {
  return {{"OneBitLamb",
           {},
           one_bit_lamb_rules(),
           {"exp_avg", "exp_avg_sq", "exp_avg_sq_fresh", worker_error_name, server_error_name,
            "lamb_coeff_freeze", "last_factor", "scaling_coeff"}},
          one_bit_lamb_states,
          make_as<OneBitLamb>};
}

}  // namespace tessera::optim::detail
