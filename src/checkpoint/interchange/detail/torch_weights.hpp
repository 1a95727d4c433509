#pragma once
/// pytorch_model.bin as weight files.

#include <filesystem>
#include <memory>
#include <vector>

#include "interchange/detail/weight_files.hpp"

namespace tessera::checkpoint::detail {

/// pytorch_model.bin of a directory, its shards by pytorch_model.bin.index.json, or one file of any
/// name; nothing in them is executed.
std::unique_ptr<WeightFiles> open_torch_weights(std::filesystem::path const& directory);
/// @param descriptors of the layout's files in their order; owned from here on
std::unique_ptr<WeightFiles> torch_weights_of_layout(ConfigTree const& layout,
                                                     std::vector<int> const& descriptors);

}  // namespace tessera::checkpoint::detail
