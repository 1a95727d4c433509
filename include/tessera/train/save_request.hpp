#pragma once
/// What a checkpoint of a run holds.

#include <cstdint>

#include "tessera/checkpoint/save/save.hpp"
#include "tessera/train/run_log.hpp"
#include "tessera/train/training_run.hpp"

namespace tessera::train {

/// Every option with its value and origin, what it resolves to, and the DeepSpeed configuration as
/// written.
ConfigTree resolved_config(JobContext const& job, TrainingRun const& run);

/// The request for a checkpoint after step @p step. @pre the run trains
checkpoint::SaveRequest save_request(JobContext const& job, TrainingRun const& run,
                                     std::int64_t step, SaveContent content);

}  // namespace tessera::train
