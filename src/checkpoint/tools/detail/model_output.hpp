#pragma once
/// Where a model is written: what is checked before the first byte, removal of files that a killed
/// run left, and the small files next to the weights.

#include <cstdint>
#include <filesystem>
#include <string>
#include <vector>

#include "tessera/checkpoint/tools/consolidate.hpp"
#include "tessera/core/config_tree.hpp"

namespace tessera::checkpoint::detail {

enum class OutputFormat { directory, safetensors, torch, hdf5 };
/// Returns the format by the suffix: .safetensors; .bin, .pt, .pth; .h5, .hdf5; else a directory.
OutputFormat output_format(std::filesystem::path const& output);

/// What is known before the first byte is written.
struct OutputRequest {
  std::filesystem::path output;
  std::filesystem::path checkpoint;
  std::int64_t bytes = 0;  ///< that will be written
  WhenPresent when_present = WhenPresent::replace;
};
struct PreparedOutput {
  std::vector<std::string> leftovers;           ///< names of what was removed
  std::vector<std::filesystem::path> replaced;  ///< files of a model that the new one replaces
};

/// Makes the directory of the output and removes what runs that no longer live left of it.
/// @throws UsageError when the output is in the checkpoint, is of the other kind, or holds a
/// model that is not to be replaced; IoError when there is too little space or no right
PreparedOutput prepare_output(OutputRequest const& request);

/// Where the files next to the weights of a checkpoint are: its directory or those above it (the
/// run, DeepSpeed's save_dir), else where the run took its tokenizer and model.
std::vector<std::filesystem::path> companion_places(std::filesystem::path const& checkpoint,
                                                    ConfigTree const& resolved_config);
/// Copies the tokenizer's files and generation_config.json into a model directory, each kind from
/// the first of the places that has it.
/// @return the copies
std::vector<std::filesystem::path> copy_companions(std::vector<std::filesystem::path> const& places,
                                                   std::filesystem::path const& output);

}  // namespace tessera::checkpoint::detail
