#pragma once
/// A model as one HDF5 file.

#include <filesystem>
#include <memory>
#include <vector>

#include "tessera/checkpoint/interchange/tensor_writer.hpp"
#include "tessera/core/dtype.hpp"

namespace tessera::checkpoint {

/// One HDF5 file with a dataset per tensor in its true shape; aliases are hard links to it.
std::unique_ptr<TensorWriter> make_hdf5_writer(std::filesystem::path const& file,
                                               std::vector<TensorHeader> const& tensors,
                                               std::vector<TensorAlias> const& aliases,
                                               Dtype dtype);

}  // namespace tessera::checkpoint
