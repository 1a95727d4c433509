#pragma once
/// The tensors of a Hugging Face model directory, in any supported file format.

#include <cstdint>
#include <filesystem>
#include <memory>
#include <string>
#include <vector>

#include "tessera/core/config_tree.hpp"

namespace tessera::checkpoint::detail {

class WeightFiles {
 public:
  virtual ~WeightFiles() = default;
  virtual std::vector<std::string> names() const = 0;
  /// The shape of a tensor, or null.
  virtual std::vector<std::int64_t> const* find(std::string const& name) const = 0;
  /// Elements [first, first + numel) as fp32. Positional: threads may share it. @pre the tensor is
  /// there
  virtual void read(std::string const& name, std::int64_t first, std::int64_t numel,
                    float* out) const = 0;
  virtual std::vector<std::filesystem::path> const& files() const = 0;
  /// Where the tensors are, from which weights_of_layout() makes the same weights without reading a
  /// header.
  virtual ConfigTree layout() const = 0;
};

/// pytorch_model.bin of a directory, its shards by pytorch_model.bin.index.json, or one file of any
/// name; nothing in them is executed.
std::unique_ptr<WeightFiles> open_torch_weights(std::filesystem::path const& directory);
/// @param descriptors of the layout's files in their order; owned from here on
std::unique_ptr<WeightFiles> torch_weights_of_layout(ConfigTree const& layout,
                                                     std::vector<int> const& descriptors);

}  // namespace tessera::checkpoint::detail
