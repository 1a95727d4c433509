#pragma once
/// DeepSpeed's universal checkpoints: a directory per parameter, one file per state.

#include <filesystem>

#include "interchange/detail/training_source.hpp"

namespace tessera::checkpoint::detail {

/// Whether @p directory is one.
bool is_universal(std::filesystem::path const& directory);
TrainingSource read_universal(std::filesystem::path const& directory, CrcCheck check);

}  // namespace tessera::checkpoint::detail
