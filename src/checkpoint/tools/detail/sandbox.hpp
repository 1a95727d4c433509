#pragma once
/// Work in a child process, for libraries that may crash, hang or take all memory on a hostile
/// file.

#include <functional>
#include <string>
#include <vector>

namespace tessera::checkpoint::detail {

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
