#pragma once
/// The text of --optim_args: hyperparameters of the optimizer that --optim names.

#include <string>
#include <vector>

#include "tessera/optim/optimizer.hpp"

namespace tessera::config::detail {

/// Reads "momentum=0.9, nesterov=true" as hyperparameters of @p optimizer, in PyTorch's names
/// (beta1 and beta2 for its betas). Flags are true, false, yes, no, 1 or 0.
/// @throws UsageError naming the item; for an unknown name with the nearest known one
std::vector<optim::Hyperparameter> parse_optim_args(std::string const& text,
                                                    optim::OptimizerInfo const& optimizer);

}  // namespace tessera::config::detail
