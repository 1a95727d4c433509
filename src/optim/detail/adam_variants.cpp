#include "detail/optimizer_table.hpp"

#include <cmath>

#include "detail/elementwise.hpp"
#include "tessera/kernels/optimizer/elementwise_update.hpp"

namespace tessera::optim::detail {
namespace {

using Range = HyperparameterRule::Range;

std::vector<HyperparameterRule> common_rules() { return adam_rules("added to the denominator"); }

std::vector<HyperparameterRule> variant_rules() {
  auto out = common_rules();
  out.push_back({"decoupled_weight_decay", 0.0, Range::flag,
                 "decay weights as AdamW does, instead of adding to the gradient"});
  return out;
}

std::vector<HyperparameterRule> nadam_rules() {
  auto out = variant_rules();
  out.push_back(
      {"momentum_decay", 4e-3, Range::not_negative, "mu of step t is beta1 (1 - 0.96^(t d) / 2)"});
  return out;
}

std::vector<StateSpec> moments(OptimizerSpec const&) { return {{"exp_avg"}, {"exp_avg_sq"}}; }
std::vector<StateSpec> adamax_states(OptimizerSpec const&) { return {{"exp_avg"}, {"exp_inf"}}; }

kernels::AdamaxStep adamax_values(OptimizerSpec const& spec, StepControl const& control) {
  kernels::AdamaxStep step;
  step.beta1 = spec.value("beta1");
  step.beta2 = spec.value("beta2");
  step.epsilon = spec.value("eps");
  step.bias_correction1 = bias_correction(step.beta1, control.step);
  return step;
}

kernels::AdamVariantStep variant_values(OptimizerSpec const& spec) {
  kernels::AdamVariantStep step;
  step.beta1 = spec.value("beta1");
  step.beta2 = spec.value("beta2");
  step.decay =
      spec.value("decoupled_weight_decay") != 0.0 ? kernels::Decay::decoupled : kernels::Decay::l2;
  return step;
}

double mu(OptimizerSpec const& spec, std::int64_t t) {
  return spec.value("beta1") *
         (1.0 - 0.5 * std::pow(0.96, static_cast<double>(t) * spec.value("momentum_decay")));
}

/// Product of mu over the steps 1 to @p t. It ends early where 1 - product is 1 in double.
double product_of_mu(OptimizerSpec const& spec, std::int64_t t) {
  double product = 1.0;
  for (std::int64_t k = 1; k <= t && product > 1e-18; ++k) product *= mu(spec, k);
  return product;
}

kernels::AdamVariantStep nadam_values(OptimizerSpec const& spec, StepControl const& control) {
  auto const t = control.step;
  double const product = product_of_mu(spec, t), next = mu(spec, t + 1);
  auto step = variant_values(spec);
  step.gradient_share = (1.0 - mu(spec, t)) / (1.0 - product);
  step.momentum_share = next / (1.0 - product * next);
  step.root_factor = 1.0 / std::sqrt(bias_correction(step.beta2, t));
  step.offset = spec.value("eps");
  return step;
}

kernels::AdamVariantStep radam_values(OptimizerSpec const& spec, StepControl const& control) {
  auto step = variant_values(spec);
  double const corrected = bias_correction(step.beta2, control.step);
  double const longest = 2.0 / (1.0 - step.beta2) - 1.0;
  // Length of the approximated moving average
  double const length =
      longest - 2.0 * static_cast<double>(control.step) * (1.0 - corrected) / corrected;
  step.momentum_share = 1.0 / bias_correction(step.beta1, control.step);
  if (length > 5.0) {
    step.momentum_share *= std::sqrt((length - 4.0) * (length - 2.0) * longest /
                                     ((longest - 4.0) * (longest - 2.0) * length));
    step.root_factor = 1.0 / std::sqrt(corrected);
    step.offset = spec.value("eps") * step.root_factor;
  } else {
    step.root_factor = 0.0;
    step.offset = 1.0;
  }
  return step;
}

}  // namespace

OptimizerEntry adamax_entry() {
  return {{"Adamax", {}, common_rules(), {"exp_avg", "exp_inf"}, 2e-3},
          adamax_states,
          make_elementwise<adamax_values, kernels::adamax>};
}
OptimizerEntry nadam_entry() {
  return {{"NAdam", {}, nadam_rules(), {"exp_avg", "exp_avg_sq"}, 2e-3},
          moments,
          make_elementwise<nadam_values, kernels::adam_variant>};
}
OptimizerEntry radam_entry() {
  return {{"RAdam", {}, variant_rules(), {"exp_avg", "exp_avg_sq"}},
          moments,
          make_elementwise<radam_values, kernels::adam_variant>};
}

}  // namespace tessera::optim::detail
