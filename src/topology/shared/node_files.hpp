#pragma once
/// Files that one rank per node opens for all ranks of the node.

#include <filesystem>
#include <string>
#include <utility>
#include <vector>

#include "tessera/topology/mpi_session.hpp"

namespace tessera::topology {

/// Descriptors of the same open files on all ranks of a node; closed by the destructor unless
/// released.
class NodeFiles {
 public:
  NodeFiles() = default;
  ~NodeFiles();
  NodeFiles(NodeFiles&& other) noexcept
      : failure(std::move(other.failure)),
        names_(std::move(other.names_)),
        descriptors_(other.release()) {}
  NodeFiles& operator=(NodeFiles&&) = delete;

  std::string failure;  ///< why a file could not be opened, on all ranks of the node; empty: all
                        ///< files are open
  std::vector<std::filesystem::path> const& names() const { return names_; }
  /// Descriptors in the order of names(); the caller closes them.
  std::vector<int> release() { return std::exchange(descriptors_, {}); }

 private:
  friend NodeFiles open_on_node(MpiSession const& session,
                                std::vector<std::filesystem::path> const& files);
  std::vector<std::filesystem::path> names_;
  std::vector<int> descriptors_;
};

/// Opens for reading the files listed by the first rank of the node: one open per file and node,
/// independent of the number of ranks. A Unix socket (SCM_RIGHTS) passes the descriptors to the
/// other ranks; a rank that cannot use the socket opens the files itself. Collective over the node.
NodeFiles open_on_node(MpiSession const& session, std::vector<std::filesystem::path> const& files);

}  // namespace tessera::topology
