#pragma once
/// Keys of the optimizer section that belong to single optimizers, and the text of --optim_args.

#include <string>
#include <vector>

#include "tessera/config/arguments.hpp"
#include "tessera/optim/optimizer.hpp"

namespace tessera::config::detail {

/// Keys of another optimizer are errors, as in PyTorch's constructors.
/// @throws ConfigError naming the key
void check_hyperparameters(DeepSpeedConfig const& json, std::string const& algorithm);

struct PeakRate {
  double value = 0.0;
  bool is_given = false;  ///< by the user, not a default
};
/// Muon's two rates follow one schedule: @p name (muon_rate or adam_rate) as a multiple of its
/// peak. Without any rate in the section they are DeepSpeed's 0.02 and 3e-4.
/// @throws ConfigError when the peak is 0
double rate_multiple(DeepSpeedConfig const& json, std::string const& name, PeakRate const& peak);

/// Whether the optimizer computes the rate itself (Adafactor's relative_step).
/// @throws UsageError when @p rate_is_given
bool sets_own_rate(optim::OptimizerSpec const& optimizer, bool rate_is_given);

/// Reads "momentum=0.9, nesterov=true" as hyperparameters of @p optimizer, in PyTorch's names
/// (beta1 and beta2 for its betas). Flags are true, false, yes, no, 1 or 0.
/// @throws UsageError naming the item; for an unknown name with the nearest known one
std::vector<optim::Hyperparameter> parse_optim_args(std::string const& text,
                                                    optim::OptimizerInfo const& optimizer);

}  // namespace tessera::config::detail
