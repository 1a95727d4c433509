#pragma once
/// Where a model is written: what is checked before the first byte, and removal of files that a
/// killed run left.

#include <cstdint>
#include <filesystem>
#include <string>
#include <vector>

namespace tessera::checkpoint::detail {

/// FILE.safetensors, FILE.bin and FILE.h5 are files, everything else is a directory.
bool is_model_file(std::filesystem::path const& output);

/// Makes the directory of the output and removes what runs that no longer live left of it.
/// @param bytes that will be written
/// @throws UsageError when the output lies in @p checkpoint or is of the other kind; IoError when
/// there is too little space or no right
/// @return names of what was removed
std::vector<std::string> prepare_output(std::filesystem::path const& output,
                                        std::filesystem::path const& checkpoint,
                                        std::int64_t bytes);

}  // namespace tessera::checkpoint::detail
