#include "tessera/plan/step_time.hpp"

#include <algorithm>
#include <cmath>
#include <limits>
#include <utility>

#include "tessera/core/error.hpp"
#include "tessera/core/rounding.hpp"

namespace tessera::plan {
namespace {

using memory::PlannedWork;
using Kind = PlannedWork::Kind;

constexpr char const* compute_queue_name = "compute";

double required(double speed, char const* what, MachineProfile const& machine) {
  TESSERA_VALIDATE(speed > 0.0, ConfigError, "the machine profile ", machine.name, " has no ", what,
                   ", which this choice needs");
  return speed;
}

void add(StepTime& sum, PlannedWork const& work, std::string const& queue, double seconds) {
  bool const computes = queue == compute_queue_name;
  if (work.kind == Kind::collective) sum.collectives += 1.0;
  if (work.kind == Kind::collective)
    sum.communication += seconds;
  else if (work.kind == Kind::update)
    sum.update += seconds;
  else if (!computes)
    sum.transfers += seconds;
  if (computes) sum.compute += seconds;
}

/// The kernels around a product.
double between_products(PlannedWork const& work, MachineProfile const& machine) {
  if (machine.pass_traffic == 0.0) return 0.0;
  return machine.pass_traffic * operand_bytes(work) / machine.memory_bandwidth;
}

}  // namespace

double operand_bytes(PlannedWork const& work) {
  auto const size = static_cast<double>(size_of(work.dtype));
  auto const m = static_cast<double>(work.m), n = static_cast<double>(work.n),
             k = static_cast<double>(work.k);
  return size * (m * n + n * k + m * k - std::min({m * n, n * k, m * k}));
}

double seconds_of(PlannedWork const& work, std::string const& queue, Cluster const& cluster,
                  MachineProfile const& machine) {
  auto const bytes = static_cast<double>(work.bytes);
  bool const computes = queue == compute_queue_name;
  switch (work.kind) {
    case Kind::wait:
      return 0.0;
    case Kind::product:
      return work.flops / machine.product_speed(work.dtype, work.m, work.n, work.k) /
                 machine.pass_efficiency +
             between_products(work, machine);
    case Kind::attention:
      return work.flops / machine.attention_speed(work.dtype) / machine.pass_efficiency;
    case Kind::update:
      return bytes /
             (computes ? machine.memory_bandwidth
                       : required(machine.host_memory_bandwidth, "host_memory_bandwidth", machine));
    case Kind::copy:
      if (computes) return 2.0 * bytes / machine.memory_bandwidth;
      return machine.host_link.latency +
             bytes / required(machine.host_link.bandwidth, "host_link", machine);
    case Kind::read:
      return bytes / required(machine.drive_read, "drive_read", machine);
    case Kind::write:
      return bytes / required(machine.drive_write, "drive_write", machine);
    case Kind::collective:
      return seconds_of(Collective{work.name, bytes}, cluster_of(cluster, work.group, work.ranks),
                        machine);
  }
  return 0.0;
}

StepTime step_time(train::PlannedSteps const& steps, Cluster const& cluster,
                   MachineProfile const& machine) {
  return step_time(steps, cluster, machine, {{.ranks = cluster.ranks()}});
}

StepTime step_time(train::PlannedSteps const& steps, Cluster const& cluster,
                   MachineProfile const& machine, std::vector<RankClass> const& classes) {
  std::vector<double> seconds(steps.work.size());
  StepTime out;
  for (std::size_t i = 0; i < steps.work.size(); ++i) {
    auto const& queue = steps.queues[static_cast<std::size_t>(steps.work[i].queue)];
    seconds[i] = seconds_of(steps.work[i], queue, cluster, machine);
    if (i >= steps.first_of_second) add(out, steps.work[i], queue, seconds[i]);
  }
  Simulation const simulation({steps, std::move(seconds), machine.collective_share}, classes);
  out.seconds = simulation.second_step_end() - simulation.first_step_end();
  return out;
}

namespace {

constexpr double tree_efficiency = 0.92;

/// Times that the data passes the ring.
double ring_rounds(std::string_view name) { return name == "all_reduce" ? 2.0 : 1.0; }

bool has_two_levels(std::string_view name) {
  return name == "all_reduce" || name == "all_gather" || name == "reduce_scatter" ||
         name == "broadcast";
}

/// A profile's links in the terms of the choice that a run makes.
comm::Links links_of(Cluster const& cluster, MachineProfile const& machine) {
  double const per_node = cluster.ranks_per_node;
  return {{(per_node - 1.0) * machine.intra_node.latency, machine.intra_node.bandwidth},
          {machine.inter_node.latency, per_node * machine.inter_node.bandwidth}};
}

bool in_two_levels(Collective const& operation, Cluster const& cluster,
                   MachineProfile const* machine) {
  if (cluster.nodes < 2 || cluster.ranks_per_node < 2 || !has_two_levels(operation.name))
    return false;
  auto const levels = *cluster.host_levels;
  if (levels != comm::Levels::automatic || !machine) return levels != comm::Levels::flat;
  return comm::prefers_two_levels(links_of(cluster, *machine), cluster.nodes,
                                  cluster.ranks_per_node,
                                  static_cast<std::size_t>(operation.bytes));
}

void check(Cluster const& cluster, MachineProfile const& machine) {
  TESSERA_VALIDATE(cluster.ranks_per_node < 2 || machine.intra_node.bandwidth > 0.0, ConfigError,
                   "the machine profile ", machine.name, " has no intra_node.bandwidth, which ",
                   cluster.ranks_per_node, " ranks per node need");
  TESSERA_VALIDATE(cluster.nodes < 2 || machine.inter_node.bandwidth > 0.0, ConfigError,
                   "the machine profile ", machine.name, " has no inter_node.bandwidth, which ",
                   cluster.nodes, " nodes need");
}

/// Ranks of hosts on several nodes.
double host_seconds(Collective const& operation, Cluster const& cluster,
                    MachineProfile const& machine) {
  auto const links = links_of(cluster, machine);
  double const nodes = cluster.nodes, per_node = cluster.ranks_per_node;
  double const across = operation.bytes * (nodes - 1.0) / nodes / links.network.bytes_per_second;
  if (!in_two_levels(operation, cluster, &machine))
    return ring_rounds(operation.name) *
           ((cluster.ranks() - 1.0) * links.network.latency_seconds + per_node * across);
  return ring_rounds(operation.name) *
         ((nodes - 1.0) * links.network.latency_seconds + 2.0 * nodes * links.node.latency_seconds +
          across + operation.bytes / links.node.bytes_per_second);
}

double nccl_seconds(Collective const& operation, Cluster const& cluster,
                    MachineProfile const& machine, Protocol const& protocol) {
  double const n = cluster.ranks(), nodes = cluster.nodes, per_node = cluster.ranks_per_node;
  double bandwidth =
      per_node > 1 ? machine.intra_node.bandwidth : std::numeric_limits<double>::max();
  if (nodes > 1) bandwidth = std::min(bandwidth, per_node * machine.inter_node.bandwidth);
  double const network_steps = nodes > 1 ? nodes - 1.0 : 0.0;
  double const ring_latency =
      (n - 1.0 - network_steps) * protocol.intra_latency + network_steps * protocol.inter_latency;
  double const pass = operation.bytes * (n - 1.0) / n / (bandwidth * protocol.bandwidth);
  double const ring = ring_rounds(operation.name) * (ring_latency + pass);
  if (operation.name != "all_reduce") return ring;
  double const tree = 2.0 * ((per_node - 1.0) * protocol.intra_latency +
                             std::ceil(std::log2(nodes)) * protocol.inter_latency) +
                      2.0 * pass / tree_efficiency;
  return std::min(ring, tree);
}

}  // namespace

Cluster cluster_of(Cluster const& all, std::string_view group, int ranks) {
  if (group.empty()) return all;
  bool const strided = group.starts_with("replica group") || group.starts_with("rail");
  int const stride = strided ? all.ranks() / ranks : 1;
  int const per_node = std::clamp(all.ranks_per_node / stride, 1, ranks);
  return {ceil_divide(ranks, per_node), per_node, all.host_levels};
}

WireBytes wire_bytes(double sent, Collective const& operation, Cluster const& cluster,
                     MachineProfile const* machine) {
  if (cluster.nodes == 1) return {sent, 0.0};
  double const ranks = cluster.ranks(), nodes = cluster.nodes, per_node = cluster.ranks_per_node;
  double leaves = sent / per_node;
  if (cluster.host_levels)
    leaves = sent * (in_two_levels(operation, cluster, machine) ? nodes - 1.0 : ranks - per_node) /
             (ranks - 1.0);
  return {sent - leaves, leaves};
}

double seconds_of(Collective const& operation, Cluster const& cluster,
                  MachineProfile const& machine) {
  if (cluster.ranks() < 2) return 0.0;
  check(cluster, machine);
  if (cluster.host_levels && cluster.nodes > 1) return host_seconds(operation, cluster, machine);
  double best = nccl_seconds(operation, cluster, machine,
                             {machine.intra_node.latency, machine.inter_node.latency, 1.0});
  for (auto const& protocol : machine.protocols)
    best = std::min(best, nccl_seconds(operation, cluster, machine, protocol));
  return best;
}

}  // namespace tessera::plan
