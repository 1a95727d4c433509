#include "optimizers/table.hpp"

#include <cmath>

#include "optimizers/quantized.hpp"

namespace tessera::optim::detail {
namespace {

using Range = HyperparameterRule::Range;

/// g = gradient + weight_decay * p;  s <- alpha s + (1-alpha) g^2
///   centered: a <- a + (1-alpha) (g - a);  d = sqrt(s - a^2) + epsilon;  else d = sqrt(s) +
///   epsilon momentum: b <- momentum b + g / d;  p <- p - lr * b;  else p <- p - lr * g / d
/// in the order of operations of torch.optim.RMSprop, in fp32. Sources: Hinton, Coursera lecture
/// 6e, 2012; Graves, arXiv:1308.0850 (centered). All forms use these values.
struct RmsPropValues {
  struct Coefficients {
    float gradient_factor;
    float alpha, one_minus_alpha;
    float epsilon;
    float momentum;
  };
  struct Rates {
    float l2;  ///< weight_decay
    float learning_rate;
  };

  static constexpr char const* name = "tessera::kernels::rmsprop";

  static Coefficients coefficients(RuleStep const& step) {
    return {1.0f, fp32(step["alpha"]), fp32(1.0 - step["alpha"]), fp32(step["eps"]),
            fp32(step.value_or("momentum", 0.0))};
  }
  static Rates rates(RuleStep const& step, double weight_decay) {
    return {fp32(weight_decay), fp32(step.learning_rate)};
  }

  /// The gradient with weight decay, which enters the mean of the squares @p s.
  static KOKKOS_INLINE_FUNCTION float accumulate(Coefficients const& c, Rates const& r, float g,
                                                 float p, float& s) {
    g = multiply_add(r.l2, p, g * c.gradient_factor);
    s = multiply_add(c.one_minus_alpha * g, g, s * c.alpha);
    return g;
  }
  /// g / (sqrt(variance) + epsilon)
  static KOKKOS_INLINE_FUNCTION float scaled(Coefficients const& c, float g, float variance) {
    return g / (std::sqrt(variance) + c.epsilon);
  }
  /// The variance about the mean @p a, which g enters.
  static KOKKOS_INLINE_FUNCTION float center(Coefficients const& c, float g, float s, float& a) {
    a = multiply_add(c.one_minus_alpha, g - a, a);
    return multiply_add(-a, a, s);
  }
  static KOKKOS_INLINE_FUNCTION void descend(Rates const& r, float direction, float& p) {
    p = multiply_add(-r.learning_rate, direction, p);
  }
};

struct RmsPropRule : RmsPropValues {
  static constexpr int states = 1;
  static constexpr char const* state_names[] = {"square_avg"};
  /// bitsandbytes has signed codes of the squares as well.
  static constexpr kernels::DynamicMap maps[] = {kernels::DynamicMap::signed_values};
  static constexpr char const* quantized_name = "tessera::kernels::rmsprop_8bit";

  static KOKKOS_INLINE_FUNCTION void element(Coefficients const& c, Rates const& r, float g,
                                             float& p, float& s) {
    g = accumulate(c, r, g, p, s);
    descend(r, scaled(c, g, s), p);
  }
};

struct RmsPropMomentumRule : RmsPropValues {
  static constexpr int states = 2;  ///< square_avg, momentum_buffer

  static KOKKOS_INLINE_FUNCTION void element(Coefficients const& c, Rates const& r, float g,
                                             float& p, float& s, float& b) {
    g = accumulate(c, r, g, p, s);
    b = multiply_add(b, c.momentum, scaled(c, g, s));
    descend(r, b, p);
  }
};

struct RmsPropCenteredRule : RmsPropValues {
  static constexpr int states = 2;  ///< square_avg, grad_avg

  static KOKKOS_INLINE_FUNCTION void element(Coefficients const& c, Rates const& r, float g,
                                             float& p, float& s, float& a) {
    g = accumulate(c, r, g, p, s);
    descend(r, scaled(c, g, center(c, g, s, a)), p);
  }
};

struct RmsPropCenteredMomentumRule : RmsPropValues {
  static constexpr int states = 3;  ///< square_avg, momentum_buffer, grad_avg

  template <class... States>
  static KOKKOS_INLINE_FUNCTION void element(Coefficients const& c, Rates const& r, float g,
                                             float& p, States&... states_of_element) {
    float* const x[] = {&states_of_element...};
    g = accumulate(c, r, g, p, *x[0]);
    *x[1] = multiply_add(*x[1], c.momentum, scaled(c, g, center(c, g, *x[0], *x[2])));
    descend(r, *x[1], p);
  }
};

std::vector<HyperparameterRule> rmsprop_hyperparameters() {
  return {{"alpha", 0.99, Range::unit, "decay of the mean of the squared gradients"},
          {"eps", 1e-8, Range::positive, "added to the root of the mean square"},
          {"momentum", 0.0, Range::not_negative, "decay of the momentum buffer; 0: no buffer"},
          {"centered", 0.0, Range::flag, "divide by the standard deviation of the gradients"},
          {"weight_decay", 0.0, Range::not_negative, "weight decay"}};
}

std::vector<StateSpec> rmsprop_states(OptimizerSpec const& spec) {
  std::vector<StateSpec> states{{"square_avg"}};
  if (spec.value("momentum") != 0.0) states.push_back({"momentum_buffer"});
  if (spec.value("centered") != 0.0) states.push_back({"grad_avg"});
  return states;
}

std::unique_ptr<Optimizer> make_rmsprop(OptimizerSpec const& spec) {
  bool const has_momentum = spec.value("momentum") != 0.0;
  if (spec.value("centered") != 0.0)
    return has_momentum ? make_as<Elementwise<RmsPropCenteredMomentumRule>>(spec)
                        : make_as<Elementwise<RmsPropCenteredRule>>(spec);
  return has_momentum ? make_as<Elementwise<RmsPropMomentumRule>>(spec)
                      : make_as<Elementwise<RmsPropRule>>(spec);
}

}  // namespace

OptimizerEntry rmsprop_entry() {
  return {{"RMSprop",
           {"rmsprop", "rmsprop_bnb", "rmsprop_bnb_32bit"},
           rmsprop_hyperparameters(),
           {"square_avg", "momentum_buffer", "grad_avg"},
           1e-2},
          rmsprop_states,
          make_rmsprop};
}
OptimizerEntry rmsprop_8bit_entry() {
  auto rules = rmsprop_hyperparameters();
  rules.erase(rules.begin() + 2, rules.begin() + 4);  // neither momentum nor centering
  return quantized_entry<RmsPropRule>({"RMSprop8bit", {"rmsprop_bnb_8bit"}, rules});
}

}  // namespace tessera::optim::detail
