#pragma once
/// Numbers of nodes, as a type that cannot be mistaken for a rank.

#include <cstddef>

namespace tessera::topology {

/// Index of a node of the job, in the order of the nodes' lowest ranks.
enum class NodeIndex : int {};

constexpr NodeIndex first_node{0};
constexpr std::size_t position(NodeIndex node) { return static_cast<std::size_t>(node); }

}  // namespace tessera::topology
