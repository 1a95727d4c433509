#include "optimizers/table.hpp"

#include <cmath>

#include "optimizers/elementwise.hpp"

namespace tessera::optim::detail {
namespace {

using Range = HyperparameterRule::Range;

/// g = gradient + weight_decay * p;  s <- s + g^2;  p <- p - lr * g / (sqrt(s) + epsilon) in the
/// order of operations of torch.optim.Adagrad, in fp32. Source: Duchi, Hazan & Singer, "Adaptive
/// Subgradient Methods", JMLR 2011. Traffic 12 B read + 8 B written (+2).
struct AdagradRule {
  struct Coefficients {
    float gradient_factor;
    float initial_sum;  ///< in step 1; else 0
    float epsilon;
  };
  struct Rates {
    float l2;             ///< weight_decay
    float learning_rate;  ///< divided by 1 + (t-1) lr_decay
  };
  static constexpr int states = 1;
  static constexpr char const* state_names[] = {"sum"};
  static constexpr char const* name = "tessera::kernels::adagrad";

  static KOKKOS_INLINE_FUNCTION void element(Coefficients const& c, Rates const& r, float g,
                                             float& p, float& s) {
    g = multiply_add(r.l2, p, g * c.gradient_factor);
    s = multiply_add(g, g, s + c.initial_sum);
    p = multiply_add(-r.learning_rate, g / (std::sqrt(s) + c.epsilon), p);
  }
  static Coefficients coefficients(RuleStep const& step) {
    return {1.0f, step.number == 1 ? fp32(step["initial_accumulator_value"]) : 0.0f,
            fp32(step["eps"])};
  }
  static Rates rates(RuleStep const& step, double weight_decay) {
    double const divisor = 1.0 + static_cast<double>(step.number - 1) * step["lr_decay"];
    return {fp32(weight_decay), fp32(step.learning_rate / divisor)};
  }
};

}  // namespace

OptimizerEntry adagrad_entry() {
  return elementwise_entry<AdagradRule>(
      {"Adagrad",
       {"adagrad"},
       {{"lr_decay", 0.0, Range::not_negative, "step t divides the rate by 1 + (t-1) lr_decay"},
        {"eps", 1e-10, Range::positive, "added to the root of the sum of squares"},
        {"initial_accumulator_value", 0.0, Range::not_negative, "initial sum of squares"},
        {"weight_decay", 0.0, Range::not_negative, "weight decay"}},
       {},
       1e-2});
}

}  // namespace tessera::optim::detail
