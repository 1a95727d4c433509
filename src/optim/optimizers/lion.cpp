#include "optimizers/table.hpp"

#include "optimizers/quantized.hpp"

namespace tessera::optim::detail {
namespace {

/// p <- p - lr * weight_decay * p;  p <- p - lr * sign(beta1 m + (1-beta1) g)
///   m <- beta2 m + (1-beta2) g
/// in fp32, with sign(0) = 0. Source: Chen et al., "Symbolic Discovery of Optimization Algorithms",
/// NeurIPS 2023, Program 1. Traffic 12 B read + 8 B written (+2).
struct LionRule {
  struct Coefficients {
    float gradient_factor;
    float beta1, one_minus_beta1;
    float beta2, one_minus_beta2;
  };
  struct Rates {
    float keep;  ///< 1 - lr * weight_decay
    float learning_rate;
  };
  static constexpr int states = 1;
  static constexpr char const* state_names[] = {"exp_avg"};
  static constexpr kernels::DynamicMap maps[] = {kernels::DynamicMap::signed_values};
  static constexpr char const* name = "tessera::kernels::lion";
  static constexpr char const* quantized_name = "tessera::kernels::lion_8bit";

  static KOKKOS_INLINE_FUNCTION void element(Coefficients const& c, Rates const& r, float g,
                                             float& p, float& m) {
    g = g * c.gradient_factor;
    float const direction = multiply_add(c.one_minus_beta1, g, m * c.beta1);
    float const sign = direction > 0.0f ? 1.0f : direction < 0.0f ? -1.0f : direction;
    p = multiply_add(-r.learning_rate, sign, p * r.keep);
    m = multiply_add(c.one_minus_beta2, g, m * c.beta2);
  }
  static Coefficients coefficients(RuleStep const& step) {
    return {1.0f, fp32(step["beta1"]), fp32(1.0 - step["beta1"]), fp32(step["beta2"]),
            fp32(1.0 - step["beta2"])};
  }
  static Rates rates(RuleStep const& step, double weight_decay) {
    return {fp32(1.0 - step.learning_rate * weight_decay), fp32(step.learning_rate)};
  }
};

std::vector<HyperparameterRule> lion_hyperparameters(double beta2) {
  using Range = HyperparameterRule::Range;
  return {{"beta1", 0.9, Range::unit, "share of the mean in the direction"},
          {"beta2", beta2, Range::unit, "decay of the mean of the gradients"},
          {"weight_decay", 0.0, Range::not_negative, "weight decay"}};
}

}  // namespace

OptimizerEntry lion_entry() {
  return elementwise_entry<LionRule>(
      {"Lion", {"lion_32bit", "paged_lion_32bit"}, lion_hyperparameters(0.999)});
}
OptimizerEntry lion_8bit_entry() {
  return quantized_entry<LionRule>(
      {"Lion8bit", {"lion_8bit", "paged_lion_8bit"}, lion_hyperparameters(0.99)});
}

}  // namespace tessera::optim::detail
