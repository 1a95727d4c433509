#include "optimizers/table.hpp"

#include <cmath>

#include "optimizers/elementwise.hpp"

namespace tessera::optim::detail {
namespace {

using Range = HyperparameterRule::Range;

/// g = gradient + weight_decay * p;  m <- m + (1-beta1) (g - m)
///   u <- max(beta2 u, |g| + epsilon);  p <- p - lr / (1-beta1^t) * m / u
/// in the order of operations of torch.optim.Adamax, in fp32. Source: Kingma & Ba, "Adam", ICLR
/// 2015, Alg. 2.
struct AdamaxRule {
  struct Coefficients {
    float gradient_factor;
    float one_minus_beta1;
    float beta2;
    float epsilon;
  };
  struct Rates {
    float l2;         ///< weight_decay
    float step_size;  ///< lr / (1 - beta1^t)
  };
  static constexpr int states = 2;
  static constexpr char const* state_names[] = {"exp_avg", "exp_inf"};
  static constexpr char const* name = "tessera::kernels::adamax";

  static KOKKOS_INLINE_FUNCTION void element(Coefficients const& c, Rates const& r, float g,
                                             float& p, float& m, float& u) {
    g = multiply_add(r.l2, p, g * c.gradient_factor);
    m = multiply_add(c.one_minus_beta1, g - m, m);
    float const decayed = u * c.beta2, now = std::abs(g) + c.epsilon;
    u = decayed > now ? decayed : now;
    p = multiply_add(-r.step_size, m / u, p);
  }
  static Coefficients coefficients(RuleStep const& step) {
    return {1.0f, fp32(1.0 - step["beta1"]), fp32(step["beta2"]), fp32(step["eps"])};
  }
  static Rates rates(RuleStep const& step, double weight_decay) {
    return {fp32(weight_decay), fp32(step.learning_rate / step.bias_correction("beta1"))};
  }
};

/// m and v as in AdamW, then
///   p <- p - lr * (gradient_share * g + momentum_share * m) / (root_factor * sqrt(v) + offset)
/// NAdam: gradient_share = (1 - mu_t) / (1 - prod mu), momentum_share = mu_(t+1) / (1 - prod mu *
/// mu_(t+1)), root_factor = 1 / sqrt(1 - beta2^t), offset = epsilon. RAdam: gradient_share = 0,
/// momentum_share = r_t / (1 - beta1^t), offset = epsilon * root_factor; before the variance is
/// tractable root_factor = 0, offset = 1. Equal to torch.optim up to single roundings, in fp32.
/// Sources: Dozat, "Incorporating Nesterov Momentum into Adam", 2016; Liu et al., "On the Variance
/// of the Adaptive Learning Rate and Beyond", ICLR 2020.
struct AdamVariantRule {
  struct Coefficients {
    float gradient_factor;
    float one_minus_beta1;
    float beta2, one_minus_beta2;
    float gradient_share, momentum_share;
    float root_factor, offset;
  };
  struct Rates {
    float keep;  ///< 1 - lr * weight_decay; 1 with L2 decay
    float l2;    ///< weight_decay with L2 decay; else 0
    float learning_rate;
  };
  static constexpr int states = 2;
  static constexpr char const* state_names[] = {"exp_avg", "exp_avg_sq"};
  static constexpr char const* name = "tessera::kernels::adam_variant";

  static KOKKOS_INLINE_FUNCTION void element(Coefficients const& c, Rates const& r, float g,
                                             float& p, float& m, float& v) {
    g = multiply_add(r.l2, p, g * c.gradient_factor);
    p = p * r.keep;
    m = multiply_add(c.one_minus_beta1, g - m, m);
    v = multiply_add(c.one_minus_beta2 * g, g, v * c.beta2);
    float const direction = multiply_add(c.gradient_share, g, m * c.momentum_share);
    p = multiply_add(-r.learning_rate,
                     direction / multiply_add(std::sqrt(v), c.root_factor, c.offset), p);
  }
  static Coefficients coefficients(RuleStep const& step) {
    Coefficients c{};
    c.gradient_factor = 1.0f;
    c.one_minus_beta1 = fp32(1.0 - step["beta1"]);
    c.beta2 = fp32(step["beta2"]);
    c.one_minus_beta2 = fp32(1.0 - step["beta2"]);
    step.spec.algorithm == "NAdam" ? set_nadam(c, step) : set_radam(c, step);
    return c;
  }
  static Rates rates(RuleStep const& step, double weight_decay) {
    bool const decoupled = step["decoupled_weight_decay"] != 0.0;
    return {decoupled ? fp32(1.0 - step.learning_rate * weight_decay) : 1.0f,
            decoupled ? 0.0f : fp32(weight_decay), fp32(step.learning_rate)};
  }

 private:
  static double mu(RuleStep const& step, std::int64_t t) {
    return step["beta1"] *
           (1.0 - 0.5 * std::pow(0.96, static_cast<double>(t) * step["momentum_decay"]));
  }
  static void set_nadam(Coefficients& c, RuleStep const& step) {
    double product = 1.0;  // product of mu; the loop ends early where 1 - product is 1 in double
    for (std::int64_t k = 1; k <= step.number && product > 1e-18; ++k) product *= mu(step, k);
    double const next = mu(step, step.number + 1);
    c.gradient_share = fp32((1.0 - mu(step, step.number)) / (1.0 - product));
    c.momentum_share = fp32(next / (1.0 - product * next));
    c.root_factor = fp32(1.0 / std::sqrt(step.bias_correction("beta2")));
    c.offset = fp32(step["eps"]);
  }
  static void set_radam(Coefficients& c, RuleStep const& step) {
    double const corrected = step.bias_correction("beta2"),
                 longest = 2.0 / (1.0 - step["beta2"]) - 1.0;
    // length of the approximated moving average
    double const length =
        longest - 2.0 * static_cast<double>(step.number) * (1.0 - corrected) / corrected;
    double share = 1.0 / step.bias_correction("beta1"), root_factor = 0.0, offset = 1.0;
    if (length > 5.0) {
      share *= std::sqrt((length - 4.0) * (length - 2.0) * longest /
                         ((longest - 4.0) * (longest - 2.0) * length));
      root_factor = 1.0 / std::sqrt(corrected);
      offset = step["eps"] * root_factor;
    }
    c.momentum_share = fp32(share);
    c.root_factor = fp32(root_factor);
    c.offset = fp32(offset);
  }
};

std::vector<HyperparameterRule> adam_variant_hyperparameters() {
  auto out = adam_rules("added to the denominator");
  out.push_back({"decoupled_weight_decay", 0.0, Range::flag,
                 "decay weights as AdamW does, instead of adding to the gradient"});
  return out;
}

}  // namespace

OptimizerEntry adamax_entry() {
  return elementwise_entry<AdamaxRule>(
      {"Adamax", {}, adam_rules("added to the denominator"), {}, 2e-3});
}
OptimizerEntry nadam_entry() {
  auto rules = adam_variant_hyperparameters();
  rules.push_back(
      {"momentum_decay", 4e-3, Range::not_negative, "mu of step t is beta1 (1 - 0.96^(t d) / 2)"});
  return elementwise_entry<AdamVariantRule>({"NAdam", {}, rules, {}, 2e-3});
}
OptimizerEntry radam_entry() {
  return elementwise_entry<AdamVariantRule>({"RAdam", {}, adam_variant_hyperparameters()});
}

}  // namespace tessera::optim::detail
