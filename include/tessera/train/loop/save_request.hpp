#pragma once
/// What a checkpoint of a run holds.

#include <cstdint>

#include "tessera/checkpoint/save/save.hpp"
#include "tessera/train/setup/training_run.hpp"

namespace tessera::train {

/// What a checkpoint holds: what the options say (perhaps the model only), or one that a run can
/// resume from.
enum class SaveContent { regular, resumable };

/// The request for a checkpoint after step @p step. @pre the run trains
checkpoint::SaveRequest save_request(JobContext const& job, TrainingRun const& run,
                                     std::int64_t step, SaveContent content);

}  // namespace tessera::train
