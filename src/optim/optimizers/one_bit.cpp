#include "optimizers/one_bit.hpp"

#include <cmath>
#include <utility>

#include "optimizers/elementwise.hpp"

namespace tessera::optim::detail {
namespace {

/// m <- m + (1-beta1) (g - m);  e <- e + m, before the exchange. Traffic 12 B read + 8 B written.
struct OneBitMomentumRule {
  struct Coefficients {
    float gradient_factor;
    float one_minus_beta1;
  };
  struct Rates {};
  static constexpr int states = 2;  ///< exp_avg, worker_error
  static constexpr char const* name = "tessera::kernels::one_bit_momentum";

  static KOKKOS_INLINE_FUNCTION void element(Coefficients const& c, Rates const&, float g, float&,
                                             float& m, float& error) {
    g = multiply_add(g, c.gradient_factor, 0.0f);  // rounded here in every loop
    m = multiply_add(c.one_minus_beta1, g - m, m);
    error = error + m;
  }
  static Coefficients coefficients(RuleStep const& step) {
    return {1.0f, fp32(1.0 - step["beta1"])};
  }
  static Rates rates(RuleStep const&, double) { return {}; }
};

/// With the exchanged momentum x in the place of the gradient, and v unchanged:
///   m <- x;  p <- p - lr * weight_decay * p;  p <- p - lr * m / (sqrt(v) + epsilon)
/// Source: Tang et al., "1-bit Adam", ICML'21, algorithm 1, with DeepSpeed's decay. Traffic 16 B
/// read + 12 B written (+2).
struct OneBitAdamRule {
  struct Coefficients {
    float gradient_factor;  ///< factor of gradients, not of what the ranks have exchanged
    float epsilon;
  };
  struct Rates {
    float keep;  ///< 1 - lr * weight_decay
    float step_size;
  };
  static constexpr int states = 2;  ///< exp_avg, exp_avg_sq
  static constexpr char const* name = "tessera::kernels::one_bit_adam";

  static KOKKOS_INLINE_FUNCTION void element(Coefficients const& c, Rates const& r, float x,
                                             float& p, float& m, float& v) {
    m = x;
    p = multiply_add(-r.step_size, m / (std::sqrt(v) + c.epsilon), p * r.keep);
  }
  static Coefficients coefficients(RuleStep const& step) { return {1.0f, fp32(step["eps"])}; }
  static Rates rates(RuleStep const& step, double weight_decay) {
    return {fp32(1.0 - step.learning_rate * weight_decay), fp32(step.learning_rate)};
  }
};

std::vector<HyperparameterRule> one_bit_hyperparameters() {
  auto out = adam_rules("added to the root of the mean square");
  out.push_back({"freeze_step", 100000.0, HyperparameterRule::Range::positive,
                 "last step without compression"});
  return out;
}

std::vector<StateSpec> one_bit_states(OptimizerSpec const&) {
  return with_errors({{"exp_avg"}, {"exp_avg_sq"}});
}

class OneBitAdam final : public Optimizer, public Compression {
 public:
  explicit OneBitAdam(OptimizerSpec const& spec) : spec_(spec), warm_up_(spec) {
    warm_up_.hyperparameters.push_back({"bias_correction", 0.0});
  }

  OptimizerSpec const& spec() const override { return spec_; }

  /// The warm-up: Adam without bias correction.
  void update(memory::Queue& queue, Segments const& segments,
              StepControl const& control) const override {
    update_as_adamw(queue, warm_up_, with_states(segments, {exp_avg, exp_avg_sq}), control);
  }

  StepCommunication communication(std::int64_t step) const override {
    bool const compresses = static_cast<double>(step) > spec_.value("freeze_step");
    return {.reduces_gradients = !compresses, .phase = compresses ? "compressed" : "warm-up"};
  }

  void advance(memory::Queue& queue, Segments const& segments,
               StepControl const& control) const override {
    auto parts = with_states(segments, {exp_avg, worker_error});
    for (auto& s : parts.list) s.weights_out = nullptr;
    update_elements<OneBitMomentumRule>(queue, spec_, parts, control);
  }
  void complete(memory::Queue& queue, Segments const& segments, StepControl const& control,
                Directions const& exchanged) const override {
    auto const parts = with_gradients(with_states(segments, {exp_avg, exp_avg_sq}), exchanged);
    update_elements<OneBitAdamRule>(queue, spec_, parts, control);
  }

 private:
  /// States by their places in the list.
  enum State : std::size_t { exp_avg, exp_avg_sq, worker_error };

  OptimizerSpec spec_, warm_up_;
};

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
  return {{"OneBitAdam",
           {},
           one_bit_hyperparameters(),
           {"exp_avg", "exp_avg_sq", worker_error_name, server_error_name}},
          one_bit_states,
          make_as<OneBitAdam>};
}

}  // namespace tessera::optim::detail
