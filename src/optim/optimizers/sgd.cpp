#include "optimizers/table.hpp"

#include "optimizers/elementwise.hpp"
#include "tessera/core/error.hpp"

namespace tessera::optim::detail {
namespace {

using Range = HyperparameterRule::Range;

/// g = gradient + weight_decay * p, then
///   without momentum:  p <- p - lr * g
///   classical:         b <- momentum * b + (1 - dampening) * g;  p <- p - lr * b
///   nesterov:          b as above;                               p <- p - lr * (g + momentum * b)
/// in the order of operations of torch.optim.SGD, in fp32. The first step sets b = g, without
/// dampening. Source: Sutskever et al., "On the importance of initialization and momentum in deep
/// learning", ICML 2013.
struct SgdRule {
  struct Coefficients {
    float gradient_factor;
    float momentum;
    float one_minus_dampening;  ///< 1 in the first step
    bool nesterov;
  };
  struct Rates {
    float l2;  ///< weight_decay
    float learning_rate;
  };
  static constexpr int states = 0;
  static constexpr char const* name = "tessera::kernels::sgd";

  static KOKKOS_INLINE_FUNCTION void element(Coefficients const& c, Rates const& r, float g,
                                             float& p) {
    g = multiply_add(r.l2, p, g * c.gradient_factor);
    p = multiply_add(-r.learning_rate, g, p);
  }
  static Coefficients coefficients(RuleStep const& step) {
    return {1.0f, fp32(step["momentum"]), step.number == 1 ? 1.0f : fp32(1.0 - step["dampening"]),
            step["nesterov"] != 0.0};
  }
  static Rates rates(RuleStep const& step, double weight_decay) {
    return {fp32(weight_decay), fp32(step.learning_rate)};
  }
};

struct SgdMomentumRule : SgdRule {
  static constexpr int states = 1;  ///< momentum_buffer

  static KOKKOS_INLINE_FUNCTION void element(Coefficients const& c, Rates const& r, float g,
                                             float& p, float& b) {
    g = multiply_add(r.l2, p, g * c.gradient_factor);
    b = multiply_add(c.one_minus_dampening, g, b * c.momentum);
    float const direction = c.nesterov ? multiply_add(c.momentum, b, g) : b;
    p = multiply_add(-r.learning_rate, direction, p);
  }
};

std::vector<StateSpec> sgd_states(OptimizerSpec const& spec) {
  double const momentum = spec.value("momentum"), dampening = spec.value("dampening");
  TESSERA_VALIDATE(spec.value("nesterov") == 0.0 || (momentum > 0.0 && dampening == 0.0),
                   ConfigError, "optimizer SGD: nesterov is set with momentum ", momentum,
                   " and dampening ", dampening, "; it needs a momentum and zero dampening");
  if (momentum == 0.0) return {};
  return {{"momentum_buffer"}};
}

std::unique_ptr<Optimizer> make_sgd(OptimizerSpec const& spec) {
  return spec.states.empty() ? make_as<Elementwise<SgdRule>>(spec)
                             : make_as<Elementwise<SgdMomentumRule>>(spec);
}

}  // namespace

OptimizerEntry sgd_entry() {
  return {{"SGD",
           {"sgd"},
           {{"momentum", 0.0, Range::not_negative, "decay of the momentum buffer; 0: no buffer"},
            {"dampening", 0.0, Range::any, "share of the gradient left out of the momentum buffer"},
            {"weight_decay", 0.0, Range::not_negative, "weight decay"},
            {"nesterov", 0.0, Range::flag, "Nesterov's form of momentum"}},
           {"momentum_buffer"}},
          sgd_states,
          make_sgd};
}

}  // namespace tessera::optim::detail
