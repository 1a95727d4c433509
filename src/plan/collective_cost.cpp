#include "tessera/plan/collective_cost.hpp"

#include <algorithm>
#include <cmath>
#include <limits>

#include "tessera/core/error.hpp"

namespace tessera::plan {
namespace {

constexpr double tree_efficiency = 0.92;

/// Times that the data passes the ring.
double rounds(std::string_view name) { return name == "all_reduce" ? 2.0 : 1.0; }

}  // namespace

Cluster cluster_of(Cluster const& all, std::string_view group, int ranks) {
  if (group.empty()) return all;
  bool const strided = group.starts_with("replica group") || group.starts_with("rail");
  int const stride = strided ? all.ranks() / ranks : 1;
  int const per_node = std::clamp(all.ranks_per_node / stride, 1, ranks);
  return {(ranks + per_node - 1) / per_node, per_node};
}

WireBytes wire_bytes(double sent, Cluster const& cluster) {
  if (cluster.nodes == 1) return {sent, 0.0};
  double const leaves = sent / cluster.ranks_per_node;
  return {sent - leaves, leaves};
}

double seconds_of(Collective const& operation, Cluster const& cluster,
                  MachineProfile const& machine) {
  double const n = cluster.ranks(), nodes = cluster.nodes, per_node = cluster.ranks_per_node;
  if (n < 2) return 0.0;
  auto const &intra = machine.intra_node, &inter = machine.inter_node;
  TESSERA_VALIDATE(per_node < 2 || intra.bandwidth > 0.0, ConfigError, "the machine profile ",
                   machine.name, " has no intra_node.bandwidth, which ", cluster.ranks_per_node,
                   " ranks per node need");
  double bandwidth = per_node > 1 ? intra.bandwidth : std::numeric_limits<double>::max();
  if (nodes > 1) {
    TESSERA_VALIDATE(inter.bandwidth > 0.0, ConfigError, "the machine profile ", machine.name,
                     " has no inter_node.bandwidth, which ", cluster.nodes, " nodes need");
    bandwidth = std::min(bandwidth, per_node * inter.bandwidth);
  }
  double const network_steps = nodes > 1 ? nodes - 1.0 : 0.0;
  double const ring_latency =
      (n - 1.0 - network_steps) * intra.latency + network_steps * inter.latency;
  double const pass = operation.bytes * (n - 1.0) / n / bandwidth;
  double const ring = rounds(operation.name) * (ring_latency + pass);
  if (operation.name != "all_reduce") return ring;
  double const tree =
      2.0 * ((per_node - 1.0) * intra.latency + std::ceil(std::log2(nodes)) * inter.latency) +
      2.0 * pass / tree_efficiency;
  return std::min(ring, tree);
}

}  // namespace tessera::plan
