#pragma once
/// Files that one rank of a node opens for all of its ranks.

#include <filesystem>
#include <string>
#include <utility>
#include <vector>

#include "tessera/topology/mpi_session.hpp"

namespace tessera::topology {

/// Descriptors of the same open files in every rank of a node; closed at the end unless released.
class NodeFiles {
 public:
  NodeFiles() = default;
  ~NodeFiles();
  NodeFiles(NodeFiles&& other) noexcept
      : failure(std::move(other.failure)),
        names_(std::move(other.names_)),
        descriptors_(other.release()) {}
  NodeFiles& operator=(NodeFiles&&) = delete;

  std::string
      failure;  ///< why a file could not be opened, on every rank of the node; empty: all are open
  std::vector<std::filesystem::path> const& names() const { return names_; }
  /// In the order of names(); the caller closes them.
  std::vector<int> release() { return std::exchange(descriptors_, {}); }

 private:
  friend NodeFiles open_on_node(MpiSession const& session,
                                std::vector<std::filesystem::path> const& files);
  std::vector<std::filesystem::path> names_;
  std::vector<int> descriptors_;
};

/// Opens the files that the node's first rank names, for reading: one open a file and node,
/// whatever the number of ranks. The descriptors reach the other ranks through a Unix socket
/// (SCM_RIGHTS); a rank that the socket does not reach opens the files itself. Collective over the
/// node.
NodeFiles open_on_node(MpiSession const& session, std::vector<std::filesystem::path> const& files);

}  // namespace tessera::topology
