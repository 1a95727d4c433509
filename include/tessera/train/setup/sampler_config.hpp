#pragma once
/// The order of the training samples, from the options of a run.

#include <cstdint>

#include "tessera/config/arguments.hpp"
#include "tessera/config/resolved_config.hpp"
#include "tessera/data/sampling/sampler.hpp"

namespace tessera::train {

/// @param samples of the training data
/// group_by_length takes its order from `seed`, the other random orders from `data_seed`, else from
/// `seed`, as Trainer does.
data::SamplerConfig sampler_config(config::TrainingArguments const& arguments,
                                   config::ResolvedConfig const& config, std::int64_t samples,
                                   int ranks);

}  // namespace tessera::train
