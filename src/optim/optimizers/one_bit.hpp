#pragma once
/// OneBitAdam and LAMB, and what OneBitLamb shares with them.

#include <cstddef>
#include <vector>

#include "optimizers/segments.hpp"
#include "optimizers/table.hpp"
#include "tessera/optim/compression.hpp"
#include "tessera/optim/summing_optimizer.hpp"

namespace tessera::optim::detail {

/// @p states and those of the errors of compression.
std::vector<StateSpec> with_errors(std::vector<StateSpec> states);
/// Keeps only some of the states of the segments, by their indices in the list.
Segments with_states(Segments segments, std::vector<std::size_t> const& kept);
/// Replaces the gradients of the segments, without padding, by what the ranks have exchanged.
Segments with_gradients(Segments segments, Directions const& exchanged);

/// What OneBitLamb shares with Lamb: the hyperparameters but for bias_correction, exp_avg and
/// exp_avg_sq, and the kernels' values of a step without bias correction unless @p spec has it.
std::vector<HyperparameterRule> lamb_rules();
std::vector<StateSpec> lamb_states(OptimizerSpec const& spec);
/// Adds the norms of the runs of @p segments, which have the two states, to @p sums.
void sum_lamb_norms(memory::Queue& queue, OptimizerSpec const& spec, Segments const& segments,
                    StepControl const& control, ParameterSums const& sums);
/// The update without bias correction unless @p spec has it.
void update_as_lamb(memory::Queue& queue, OptimizerSpec const& spec, Segments const& segments,
                    StepControl const& control, ParameterSums const& sums);

}  // namespace tessera::optim::detail
