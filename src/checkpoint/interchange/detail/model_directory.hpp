#pragma once
/// The parts of a Hugging Face model directory that are not tensors, and such a directory made from
/// a checkpoint's shards.

#include <filesystem>
#include <string>
#include <vector>

#include "tessera/checkpoint/format/manifest.hpp"
#include "tessera/checkpoint/interchange/tensor_writer.hpp"
#include "tessera/core/config_tree.hpp"
#include "tessera/core/dtype.hpp"

namespace tessera::checkpoint::detail {

/// config.json, which names the type of the weights.
std::string model_config_text(ConfigTree const& model_config, Dtype dtype);
struct NamedTensors {
  std::vector<TensorHeader> tensors;
  std::vector<TensorAlias> aliases;
};
NamedTensors tensors_of(Manifest const& manifest);

/// Whether the tensors of a checkpoint are a model or an adapter. @throws DataError when they are
/// only a part of a model
WeightsOf weights_in(Manifest const& manifest);
/// Writes config.json, which names the type of the weights, or adapter_config.json.
/// @return the file, or nothing if the checkpoint has no configuration
std::vector<std::filesystem::path> write_config(std::filesystem::path const& directory,
                                                Manifest const& manifest, Dtype dtype);

/// Writes the fp32 weights of shards that are in @p manifest.directory as safetensors in @p dtype
/// next to them, with config.json. Streamed; every chunk is checked. @return the files
std::vector<std::filesystem::path> write_model_directory(Manifest const& manifest, Dtype dtype);

}  // namespace tessera::checkpoint::detail
