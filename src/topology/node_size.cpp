#include "tessera/topology/node_index.hpp"

#include <algorithm>

namespace tessera::topology {

int uniform_node_size(std::vector<NodeIndex> const& nodes) {
  if (nodes.empty()) return 0;
  auto const size = static_cast<std::size_t>(std::ranges::count(nodes, nodes.front()));
  if (nodes.size() % size != 0) return 0;
  for (std::size_t rank = 0; rank < nodes.size(); ++rank) {
    std::size_t const first = rank / size * size;
    bool const starts_node = rank == first && rank > 0;
    if (nodes[rank] != nodes[first] || (starts_node && nodes[rank] == nodes[rank - 1])) return 0;
  }
  return static_cast<int>(size);
}

}  // namespace tessera::topology
