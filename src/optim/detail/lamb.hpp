#pragma once
/// LAMB in the form of DeepSpeed's FusedLamb, with the norms of complete parameters on any number
/// of ranks.

#include "detail/optimizer_table.hpp"
#include "tessera/kernels/optimizer/lamb.hpp"
#include "tessera/optim/summing_optimizer.hpp"

namespace tessera::optim::detail {

OptimizerEntry lamb_entry();

/// What OneBitLamb shares with it: the hyperparameters but for bias_correction, exp_avg and
/// exp_avg_sq, and the kernels' values of a step without bias correction unless @p spec has it.
std::vector<HyperparameterRule> lamb_rules();
std::vector<StateSpec> lamb_states(OptimizerSpec const& spec);
/// @param segments with the two states
kernels::LambStep lamb_step(OptimizerSpec const& spec, Segments const& segments,
                            StepControl const& control, ParameterSums const& sums);

}  // namespace tessera::optim::detail
