#pragma once
/// The trained model as a Hugging Face directory, at the end of a run.

#include <cstdint>
#include <filesystem>
#include <vector>

#include "tessera/train/setup/training_run.hpp"

namespace tessera::train {

/// Files that belong next to the weights: the tokenizer's, and generation_config.json of the model
/// that the run started from. Read on rank 0.
std::vector<std::filesystem::path> model_companions(TrainingRun const& run);

/// Before the first step: whether the trained model and, where the run saves, another checkpoint
/// fit into the output directory. Collective. @throws IoError on every rank
void require_room(JobContext const& job, TrainingRun const& run);

/// All ranks write their weights into config.json, safetensors and the companions in the output
/// directory; a failure leaves it as it was. Collective.
/// @param last_saved_step  of the newest checkpoint, for the message; -1: none
/// @throws IoError on every rank
void export_model(JobContext const& job, TrainingRun const& run, std::int64_t last_saved_step);

}  // namespace tessera::train
