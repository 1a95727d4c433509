#pragma once
/// The parts of a Hugging Face model directory that are not tensors, and such a directory made from
/// a checkpoint's shards.

#include <filesystem>
#include <string>
#include <vector>

#include "tessera/checkpoint/format/manifest.hpp"
#include "tessera/core/config_tree.hpp"
#include "tessera/core/dtype.hpp"

namespace tessera::checkpoint::detail {

/// config.json, which names the type of the weights.
std::string model_config_text(ConfigTree const& model_config, Dtype dtype);
/// Writes config.json, which names the type of the weights. @return the file
std::filesystem::path write_model_config(std::filesystem::path const& directory,
                                         ConfigTree const& model_config, Dtype dtype);

/// Writes the fp32 weights of shards that lie in @p manifest.directory as safetensors in @p dtype
/// next to them, with config.json. Streamed; every chunk is checked. @return the files
std::vector<std::filesystem::path> write_model_directory(Manifest const& manifest, Dtype dtype);

}  // namespace tessera::checkpoint::detail
