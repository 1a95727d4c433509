#include "optimizers/table.hpp"

#include <cmath>

#include "optimizers/quantized.hpp"

namespace tessera::optim::detail {
namespace {

/// m <- beta1 m + (1-beta1) g;  v <- beta2 v + (1-beta2) g^2
///   p <- p - lr * weight_decay * p, then
///   p <- p - lr * (m / (1-beta1^t)) / (sqrt(v / (1-beta2^t)) + epsilon)
/// Adam: g += weight_decay * p first, no decoupled decay; bias_correction 0: the divisors are 1. In
/// the order of operations of torch.optim.AdamW, in fp32. Sources: Loshchilov & Hutter, "Decoupled
/// Weight Decay Regularization", ICLR 2019, Alg. 2; Kingma & Ba, "Adam", ICLR 2015. Traffic 16 B
/// read + 12 B written (+2), in 8 bits 10 B read + 6 B written (+2).
struct AdamWRule {
  struct Coefficients {
    float gradient_factor;
    float beta1, one_minus_beta1;
    float beta2, one_minus_beta2;
    float inverse_sqrt_bias_correction2;  ///< 1 / sqrt(1 - beta2^t)
    float epsilon;
  };
  struct Rates {
    float keep;       ///< 1 - lr * weight_decay; 1 with L2 decay
    float l2;         ///< weight_decay with L2 decay; else 0
    float step_size;  ///< lr / (1 - beta1^t)
  };
  static constexpr int states = 2;
  static constexpr char const* state_names[] = {"exp_avg", "exp_avg_sq"};
  static constexpr kernels::DynamicMap maps[] = {kernels::DynamicMap::signed_values,
                                                 kernels::DynamicMap::unsigned_values};
  static constexpr char const* name = "tessera::kernels::adamw";
  static constexpr char const* quantized_name = "tessera::kernels::adamw_8bit";

  static KOKKOS_INLINE_FUNCTION void element(Coefficients const& c, Rates const& r, float g,
                                             float& p, float& m, float& v) {
    g = g * c.gradient_factor;
    g = multiply_add(r.l2, p, g);
    p = p * r.keep;
    m = multiply_add(c.one_minus_beta1, g - m, m);
    v = multiply_add(c.one_minus_beta2 * g, g, v * c.beta2);
    float const denominator =
        multiply_add(std::sqrt(v), c.inverse_sqrt_bias_correction2, c.epsilon);
    p = multiply_add(-r.step_size, m / denominator, p);
  }
  static double correction(RuleStep const& step, char const* beta) {
    return step.value_or("bias_correction", 1.0) != 0.0 ? step.bias_correction(beta) : 1.0;
  }
  static Coefficients coefficients(RuleStep const& step) {
    return {1.0f,
            fp32(step["beta1"]),
            fp32(1.0 - step["beta1"]),
            fp32(step["beta2"]),
            fp32(1.0 - step["beta2"]),
            fp32(1.0 / std::sqrt(correction(step, "beta2"))),
            fp32(step["eps"])};
  }
  static Rates rates(RuleStep const& step, double weight_decay) {
    bool const is_l2 = step.spec.algorithm == "Adam";
    return {is_l2 ? 1.0f : fp32(1.0 - step.learning_rate * weight_decay),
            is_l2 ? fp32(weight_decay) : 0.0f,
            fp32(step.learning_rate / correction(step, "beta1"))};
  }
};

std::vector<HyperparameterRule> adamw_hyperparameters() {
  auto out = adam_rules("added to the root of the mean square");
  out.push_back(
      {"bias_correction", 1.0, HyperparameterRule::Range::flag, "divide the means by 1 - beta^t"});
  return out;
}

}  // namespace

void update_as_adamw(memory::Queue& queue, OptimizerSpec const& spec, Segments const& segments,
                     StepControl const& control) {
  update_elements<AdamWRule>(queue, spec, segments, control);
}

OptimizerEntry adamw_entry() {
  return elementwise_entry<AdamWRule>(
      {"AdamW",
       {"adamw_torch_fused", "adamw_torch", "adamw_hf", "adamw_apex_fused", "adamw_torch_xla",
        "adamw_torch_npu_fused", "paged_adamw", "paged_adamw_32bit"},
       adamw_hyperparameters()});
}
OptimizerEntry adam_entry() {
  return elementwise_entry<AdamWRule>({"Adam", {}, adamw_hyperparameters()});
}
OptimizerEntry adamw_8bit_entry() {
  return quantized_entry<AdamWRule>({"AdamW8bit",
                                     {"adamw_8bit", "adamw_bnb_8bit", "paged_adamw_8bit"},
                                     adam_rules("added to the root of the mean square")});
}

}  // namespace tessera::optim::detail
