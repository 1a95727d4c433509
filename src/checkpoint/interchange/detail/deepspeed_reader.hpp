#pragma once
/// DeepSpeed's checkpoints of any ZeRO stage and any number of ranks: *model_states.pt and
/// *optim_states.pt.

#include <filesystem>
#include <optional>
#include <string>

#include "interchange/detail/training_source.hpp"

namespace tessera::checkpoint::detail {

/// The checkpoint directory behind what a user gave (with `latest`, or the tag's directory itself);
/// nothing when it is not DeepSpeed's.
/// @throws IoError when a tag is named that is not there
std::optional<std::filesystem::path> find_deepspeed(std::filesystem::path const& given,
                                                    std::string const& tag);
/// @param directory from find_deepspeed; plain or universal
TrainingSource read_deepspeed(std::filesystem::path const& directory, Wanted wanted,
                              CrcCheck check);

}  // namespace tessera::checkpoint::detail
