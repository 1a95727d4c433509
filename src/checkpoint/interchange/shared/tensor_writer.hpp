#pragma once
/// Model files written as a stream: tensors go in one after the other as fp32, the file appears
/// when it is complete.

#include <cstdint>
#include <filesystem>
#include <map>
#include <memory>
#include <string>
#include <vector>

#include "tessera/core/dtype.hpp"

namespace tessera::checkpoint {

struct TensorHeader {
  std::string name;
  std::vector<std::int64_t> shape;
  std::int64_t numel() const;
};

/// A further name of a tensor; both share its storage.
struct TensorAlias {
  std::string name;
  std::size_t tensor = 0;  ///< index in the announced tensors
};

/// Takes the announced tensors in order and writes them as fp32, bf16 or fp16, rounding to nearest
/// even in small chunks. Without finish() nothing stays behind. @throws IoError with path, bytes
/// and reason
class TensorWriter {
 public:
  virtual ~TensorWriter() = default;
  /// The next elements, in any number of parts; a part may end inside a tensor or go over several.
  virtual void write(float const* data, std::int64_t numel) = 0;
  /// Makes the files durable and gives them their names. @throws InternalError when elements are
  /// missing
  /// @return the files
  virtual std::vector<std::filesystem::path> finish() = 0;
};

/// One HDF5 file with a dataset per tensor in its true shape; aliases are hard links to it.
std::unique_ptr<TensorWriter> make_hdf5_writer(std::filesystem::path const& file,
                                               std::vector<TensorHeader> const& tensors,
                                               std::vector<TensorAlias> const& aliases,
                                               Dtype dtype);

/// pytorch_model.bin: the zip archive that torch.load(file, weights_only=True) reads. Stored
/// entries at multiples of 64 bytes, data.pkl in pickle protocol 2 with an OrderedDict name ->
/// tensor, one entry data/<k> a storage. Aliases follow the tensors.
std::unique_ptr<TensorWriter> make_torch_writer(std::filesystem::path const& file,
                                                std::vector<TensorHeader> const& tensors,
                                                std::vector<TensorAlias> const& aliases,
                                                Dtype dtype);

/// One safetensors file. @param metadata goes to "__metadata__"; Hugging Face wants {"format":
/// "pt"}
std::unique_ptr<TensorWriter> make_safetensors_writer(
    std::filesystem::path const& file, std::vector<TensorHeader> const& tensors, Dtype dtype,
    std::map<std::string, std::string> const& metadata = {{"format", "pt"}});

enum class WeightsOf { model, adapter };

/// A Hugging Face weights directory: model.safetensors (adapter_model.safetensors), or
/// model-00001-of-0000N.safetensors with its index when the tensors are larger than @p
/// max_shard_bytes together. Replaces the safetensors weights that are there. safetensors has no
/// shared storage: a model's file leaves aliases out, for transformers ties them when it loads; an
/// adapter's has a copy under each, without which PEFT 0.21 does not load it.
std::unique_ptr<TensorWriter> make_sharded_safetensors_writer(
    std::filesystem::path const& directory, std::vector<TensorHeader> const& tensors,
    std::vector<TensorAlias> const& aliases, Dtype dtype, std::int64_t max_shard_bytes,
    WeightsOf what = WeightsOf::model);

}  // namespace tessera::checkpoint
