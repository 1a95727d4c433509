#pragma once
/// DeepSpeed's checkpoints without ZeRO (stage 0).

#include <filesystem>

#include "interchange/detail/training_source.hpp"

namespace tessera::checkpoint::detail {

/// Reads weights and optimizer from mp_rank_00_model_states.pt.
TrainingSource read_plain(std::filesystem::path const& directory, Wanted wanted, CrcCheck check);

}  // namespace tessera::checkpoint::detail
