#pragma once
/// safetensors files, single or sharded with an index.

#include <cstdint>
#include <filesystem>
#include <map>
#include <memory>
#include <string>
#include <vector>

#include "tessera/checkpoint/interchange/tensor_writer.hpp"
#include "tessera/core/dtype.hpp"

namespace tessera::checkpoint {

/// One safetensors file. @param metadata goes to "__metadata__"; Hugging Face wants {"format":
/// "pt"}
std::unique_ptr<TensorWriter> make_safetensors_writer(
    std::filesystem::path const& file, std::vector<TensorHeader> const& tensors, Dtype dtype,
    std::map<std::string, std::string> const& metadata = {{"format", "pt"}});

enum class WeightsOf { model, adapter };

/// A Hugging Face weights directory: model.safetensors (adapter_model.safetensors), or
/// model-00001-of-0000N.safetensors with its index when the tensors are larger than @p
/// max_shard_bytes together. Replaces the safetensors weights that are there.
std::unique_ptr<TensorWriter> make_sharded_safetensors_writer(
    std::filesystem::path const& directory, std::vector<TensorHeader> const& tensors, Dtype dtype,
    std::int64_t max_shard_bytes, WeightsOf what = WeightsOf::model);

}  // namespace tessera::checkpoint
