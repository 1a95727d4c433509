#pragma once
/// What HDF5 says about the files of a checkpoint, compared with the manifest.

#include <cstddef>
#include <string>
#include <vector>

#include "tessera/checkpoint/format/manifest.hpp"

namespace tessera::checkpoint::detail {

/// Compares what HDF5 says about shard @p index, or about view.h5, with the manifest. Call it
/// through run_sandboxed().
/// @return problems, at most @p most
std::vector<std::string> compare_structure(Manifest const& manifest, int index, std::size_t most);
std::vector<std::string> compare_view(Manifest const& manifest, std::size_t most);

}  // namespace tessera::checkpoint::detail
