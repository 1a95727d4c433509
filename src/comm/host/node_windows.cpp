#include "host/node_windows.hpp"
#include "tessera/core/rounding.hpp"

#include <algorithm>
#include <map>

namespace tessera::comm::detail {

NodeWindows::NodeWindows(std::vector<topology::NodeIndex> const& nodes) {
  std::map<topology::NodeIndex, int> place;
  for (int rank = 0; rank < static_cast<int>(nodes.size()); ++rank) {
    auto const [at, is_new] =
        place.emplace(nodes[static_cast<std::size_t>(rank)], static_cast<int>(members_.size()));
    if (is_new) members_.emplace_back();
    node_of_.push_back(at->second);
    members_[static_cast<std::size_t>(at->second)].push_back(rank);
  }
}

int NodeWindows::largest_node() const {
  int largest = 0;
  for (int node = 0; node < nodes(); ++node) largest = std::max(largest, size(node));
  return largest;
}

int NodeWindows::windows(int node) const { return ceil_divide(ranks(), size(node)); }

int NodeWindows::start(int node, int window) const {
  return std::min(window * size(node), ranks() - size(node));
}

int NodeWindows::window_of(int node, int shard) const { return shard / size(node); }

int NodeWindows::carrier(int node, int shard) const {
  int const position = shard - start(node, window_of(node, shard));
  return members(node)[static_cast<std::size_t>(position)];
}

}  // namespace tessera::comm::detail
