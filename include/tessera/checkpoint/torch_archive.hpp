#pragma once
/// The zip archive that torch.load(file, weights_only=True) reads: stored entries at multiples of 64 bytes, data.pkl in pickle
/// protocol 2 with an OrderedDict of name -> tensor, one entry data/<k> a storage.

#include "tessera/checkpoint/safetensors.hpp"

namespace tessera::checkpoint {

/// A further name of a tensor; both share its storage.
struct TensorAlias {
  std::string name;
  std::size_t tensor = 0;  ///< index in the announced tensors
};

/// pytorch_model.bin, streamed. Aliases follow the tensors in the dictionary.
std::unique_ptr<TensorWriter> make_torch_writer(std::filesystem::path const& file, std::vector<TensorHeader> const& tensors,
                                                std::vector<TensorAlias> const& aliases, Dtype dtype);

/// One HDF5 file with a dataset per tensor in its true shape.
std::unique_ptr<TensorWriter> make_hdf5_writer(std::filesystem::path const& file, std::vector<TensorHeader> const& tensors, Dtype dtype);

}  // namespace tessera::checkpoint
