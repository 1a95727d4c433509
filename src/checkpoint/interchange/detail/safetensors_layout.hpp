#pragma once
/// Which tensor of a model is in which safetensors file, and where: known before the first element.

#include <cstdint>
#include <filesystem>
#include <functional>
#include <map>
#include <string>
#include <vector>

#include "tessera/checkpoint/interchange/tensor_writer.hpp"
#include "tessera/core/dtype.hpp"

namespace tessera::checkpoint::detail {

/// u64 length and JSON of tensors [first, last), padded with blanks so that the data starts at a
/// multiple of 64 bytes.
std::string safetensors_header(std::vector<TensorHeader> const& tensors, std::size_t first,
                               std::size_t last, Dtype dtype,
                               std::map<std::string, std::string> const& metadata);

/// The name of weights in Hugging Face's directories, without ".safetensors".
inline char const* stem_of(WeightsOf what) {
  return what == WeightsOf::adapter ? "adapter_model" : "model";
}
inline constexpr char adapter_config_name[] = "adapter_config.json";

/// What the files of a Hugging Face directory hold: a copy under each alias follows the tensors of
/// an adapter.
std::vector<TensorHeader> with_copies(std::vector<TensorHeader> tensors,
                                      std::vector<TensorAlias> const& aliases, WeightsOf what);

/// The files of a Hugging Face weights directory: model.safetensors, or
/// model-00001-of-0000N.safetensors with an index. Immutable.
class SafetensorsLayout {
 public:
  /// A file is filled until the next tensor would make it larger than @p max_bytes.
  /// @param stem of the files' names
  SafetensorsLayout(std::vector<TensorHeader> tensors, Dtype dtype, std::int64_t max_bytes,
                    std::string stem = stem_of(WeightsOf::model));

  std::size_t files() const { return first_.size(); }
  std::size_t tensors() const { return tensors_.size(); }
  std::string name(std::size_t file) const;
  std::string index_name() const { return stem_ + ".safetensors.index.json"; }
  /// Whether a file of this name is weights of another layout with this stem.
  bool is_weights(std::string const& file) const;
  std::string const& header(std::size_t file) const { return headers_[file]; }
  std::int64_t bytes(std::size_t file) const { return bytes_[file]; }  ///< header included
  /// Tensors [first(file), last(file)) are in a file, in order.
  std::size_t first(std::size_t file) const { return first_[file]; }
  std::size_t last(std::size_t file) const {
    return file + 1 < files() ? first_[file + 1] : tensors_.size();
  }
  struct Location {
    std::size_t file = 0;
    std::int64_t offset = 0;  ///< bytes, of the first element
  };
  Location const& location(std::size_t tensor) const { return locations_[tensor]; }
  std::string index_text() const;  ///< index text of model.safetensors.index.json

 private:
  std::vector<TensorHeader> tensors_;
  std::string stem_;
  std::vector<std::size_t> first_{0};
  std::vector<std::string> headers_;
  std::vector<std::int64_t> bytes_;
  std::vector<Location> locations_;
  std::int64_t data_bytes_ = 0, parameters_ = 0;
};

/// Runs @p publish for every file, which gives it its name; writes the index and removes the
/// weights of an earlier model. Shards of two models never meet under one index: in between there
/// is none.
/// @return the files
std::vector<std::filesystem::path> publish_weights(
    std::filesystem::path const& directory, SafetensorsLayout const& layout,
    std::function<void(std::size_t file)> const& publish);

}  // namespace tessera::checkpoint::detail
