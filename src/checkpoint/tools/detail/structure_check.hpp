#pragma once
/// What HDF5 says about the files of a checkpoint, compared with the manifest.

#include <cstddef>
#include <functional>
#include <string>
#include <vector>

#include "tessera/checkpoint/format/manifest.hpp"

namespace tessera::checkpoint::detail {

/// Compares what HDF5 says about shard @p index, or about view.h5, with the manifest. Call it
/// through run_sandboxed().
/// @return problems, at most @p most
std::vector<std::string> compare_structure(Manifest const& manifest, int index, std::size_t most);
std::vector<std::string> compare_view(Manifest const& manifest, std::size_t most);

// Work in a child process, for libraries that may crash, hang or take all memory on a hostile
// file.

struct SandboxResult {
  std::vector<std::string> lines;  ///< what the work returned
  std::string failure;  ///< how the child ended when it did not end well: "was ended by signal 11
                        ///< (Segmentation fault)"
};
/// Runs @p work in a fork of this process with 512 MiB of memory more than it has and two minutes
/// of processor time. An exception of the work becomes its last line. @throws IoError when no
/// process can be made
SandboxResult run_sandboxed(std::function<std::vector<std::string>()> const& work);

}  // namespace tessera::checkpoint::detail
