#pragma once
/// pytorch_model.bin, written without torch.

#include <filesystem>
#include <memory>
#include <vector>

#include "tessera/checkpoint/interchange/tensor_writer.hpp"
#include "tessera/core/dtype.hpp"

namespace tessera::checkpoint {

/// pytorch_model.bin: the zip archive that torch.load(file, weights_only=True) reads. Stored
/// entries at multiples of 64 bytes, data.pkl in pickle protocol 2 with an OrderedDict name ->
/// tensor, one entry data/<k> a storage. Aliases follow the tensors.
std::unique_ptr<TensorWriter> make_torch_writer(std::filesystem::path const& file,
                                                std::vector<TensorHeader> const& tensors,
                                                std::vector<TensorAlias> const& aliases,
                                                Dtype dtype);

}  // namespace tessera::checkpoint
