#include "tessera/topology/rank_groups.hpp"

#include <algorithm>
#include <charconv>

#include "tessera/core/error.hpp"

namespace tessera::topology {
namespace {

void require_divisible(int world_size, int size) {
  TESSERA_VALIDATE(size >= 1 && world_size % size == 0, ConfigError, "groups of ", size,
                   " ranks cannot be formed of ", world_size,
                   " ranks; the group size must divide the number of ranks");
}

/// Ranks before @p rank on the same node.
int position_on_node(std::vector<NodeIndex> const& nodes, int rank) {
  return static_cast<int>(
      std::count(nodes.begin(), nodes.begin() + rank, nodes[static_cast<std::size_t>(rank)]));
}

}  // namespace

RankGroup node_group(std::vector<NodeIndex> const& nodes, int rank) {
  auto const node = nodes[static_cast<std::size_t>(rank)];
  int const number = static_cast<int>(node);
  return {number, rank, static_cast<int>(std::ranges::count(nodes, node)), concat("node ", number)};
}

RankGroup rail_group(std::vector<NodeIndex> const& nodes, int rank) {
  int const rail = position_on_node(nodes, rank);
  int size = 0;
  for (int q = 0; q < static_cast<int>(nodes.size()); ++q)
    size += position_on_node(nodes, q) == rail;
  return {rail, rank, size, concat("rail ", rail)};
}

RankGroup shard_group(int world_size, int rank, int size) {
  require_divisible(world_size, size);
  return {rank / size, rank, size, concat("shard group ", rank / size)};
}

RankGroup replica_group(int world_size, int rank, int size) {
  require_divisible(world_size, size);
  return {rank % size, rank, world_size / size, concat("replica group ", rank % size)};
}

std::vector<NodeIndex> nodes_of_sizes(std::string const& sizes, int world_size) {
  std::vector<NodeIndex> nodes;
  char const* at = sizes.data();
  char const* const end = at + sizes.size();
  for (int node = 0;; ++node) {
    int ranks = 0;
    auto const [next, error] = std::from_chars(at, end, ranks);
    bool const more = next != end && *next == ',';
    TESSERA_VALIDATE(
        error == std::errc{} && ranks > 0 && ranks <= world_size && (more || next == end),
        ConfigError, "TESSERA_SIMULATED_NODES is \"", sizes,
        "\"; expected the ranks per node, such as 2,2");
    nodes.insert(nodes.end(), static_cast<std::size_t>(ranks), NodeIndex(node));
    if (!more) break;
    at = next + 1;
  }
  TESSERA_VALIDATE(static_cast<int>(nodes.size()) == world_size, ConfigError,
                   "TESSERA_SIMULATED_NODES is \"", sizes, "\", which are ", nodes.size(),
                   " ranks, and the job has ", world_size);
  return nodes;
}

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
