#pragma once
/// DeepSpeed's checkpoints of any ZeRO stage and any number of ranks: *model_states.pt and
/// *optim_states.pt.

#include <filesystem>
#include <optional>
#include <string>

#include "interchange/detail/training_source.hpp"
#include "tessera/checkpoint/format/directory.hpp"

namespace tessera::checkpoint::detail {

/// The checkpoint directory behind what a user gave (with `latest`, or the tag's directory itself);
/// nothing when it is not DeepSpeed's.
/// @throws DataError when `latest` names a tag that is missing, IoError when it is absent and there
/// are several tags, or when a directory cannot be read
std::optional<std::filesystem::path> find_deepspeed(std::filesystem::path const& given,
                                                    std::string const& tag,
                                                    WhenDamaged when_damaged = WhenDamaged::refuse);
/// Whether it is such a checkpoint or holds at least one. @throws IoError when it cannot be read
bool holds_deepspeed(std::filesystem::path const& given);
/// @param directory from find_deepspeed; plain or universal
TrainingSource read_deepspeed(std::filesystem::path const& directory, Wanted wanted,
                              CrcCheck check);

/// Reads weights and optimizer from mp_rank_00_model_states.pt.
TrainingSource read_plain(std::filesystem::path const& directory, Wanted wanted, CrcCheck check);

/// Whether @p directory is one.
bool is_universal(std::filesystem::path const& directory);
TrainingSource read_universal(std::filesystem::path const& directory, CrcCheck check);

}  // namespace tessera::checkpoint::detail
