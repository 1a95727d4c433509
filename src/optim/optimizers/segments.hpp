#pragma once
/// What several optimizers share: segments of one parameter each, and what is Adam's.

#include <vector>

#include "tessera/optim/optimizer.hpp"

namespace tessera::optim::detail {

/// Splits segments into segments of one parameter each, without padding. @param states whose states
/// have the dtypes; those without a spec are fp32
Segments parameter_segments(Segments const& segments, std::vector<StateSpec> const& states = {});

/// beta1, beta2, eps and weight_decay, which most variants of Adam have.
/// @param eps_meaning what eps is added to
std::vector<HyperparameterRule> adam_rules(char const* eps_meaning);

/// The update of AdamW. @param spec with beta1, beta2, eps, weight_decay, and bias_correction
/// unless that is 1; @param segments with the states exp_avg and exp_avg_sq
void update_as_adamw(memory::Queue& queue, OptimizerSpec const& spec, Segments const& segments,
                     StepControl const& control);

/// 1 - beta^t of step @p t.
double bias_correction(double beta, std::int64_t t);

}  // namespace tessera::optim::detail
