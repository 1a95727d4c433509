#pragma once
/// The time of a step: the planned work of a rank, run by events on the queues of a machine; and
/// bytes and seconds of a collective operation on nodes with several ranks.

#include <optional>
#include <string_view>

#include "tessera/comm/compose/two_level.hpp"
#include "tessera/plan/machine_profile.hpp"
#include "tessera/plan/simulation.hpp"
#include "tessera/train/setup/memory_plan.hpp"

namespace tessera::plan {

/// Consecutive ranks are on one node.
struct Cluster {
  int nodes = 1;
  int ranks_per_node = 1;
  /// How operands in host memory travel between nodes (--collectives); none: by NCCL, in rings of
  /// all ranks.
  std::optional<comm::Levels> host_levels{};
  int ranks() const { return nodes * ranks_per_node; }
};

/// The nodes of the ranks of a group, as topology/rank_groups.hpp names it: consecutive ranks, or
/// one of each shard group for a replica group, one of each node for a rail.
Cluster cluster_of(Cluster const& all, std::string_view group, int ranks);

/// One operation: its name, and the bytes of data of all ranks, S.
struct Collective {
  std::string_view name;
  double bytes = 0.0;
};

/// Bytes that a rank sends, to ranks of its node and to other nodes.
struct WireBytes {
  double intra_node = 0.0, inter_node = 0.0;
  double total() const { return intra_node + inter_node; }
};
/// Where @p sent bytes per rank of @p operation travel. In a ring in the order of the nodes one
/// rank per node sends to the next node, so that one part in the number of ranks per node leaves
/// the node, where there are several. On hosts each rank sends to all others (flat), or its part
/// once to each other node (two levels). @param machine decides between these where --collectives
/// is auto; null: two
WireBytes wire_bytes(double sent, Collective const& operation, Cluster const& cluster,
                     MachineProfile const* machine);

/// Seconds by the alpha-beta model, S bytes on N ranks.
///
/// NCCL, and the ranks of one node: a ring of a reduce-scatter or an all-gather has N-1 steps and
/// passes (N-1)/N S bytes: of the steps, nodes-1 (with several nodes) have the latency of the
/// network between nodes and the others that within a node; the bytes pass the slower of the link
/// within a node and of all links of a node together. An all-reduce has twice the steps and bytes,
/// or takes a tree, whichever is faster: 2 (ranks per node - 1) steps within a node, 2 log2(nodes)
/// between nodes, at 0.92 of the bandwidth. Each protocol of the profile has its latencies and its
/// part of the bandwidth; the fastest one is taken. NCCL, src/graph/tuning.cc.
///
/// Hosts of several nodes: as docs/explanation/collectives.md#two-levels says, twice for an
/// all-reduce.
double seconds_of(Collective const& operation, Cluster const& cluster,
                  MachineProfile const& machine);

/// Seconds of one step. The parts are times of work, whether it overlaps with other work or not.
struct StepTime {
  double seconds = 0.0;
  double compute = 0.0;        ///< products, attention and what is between them, and copies there
  double update = 0.0;         ///< update of the optimizer, wherever it runs
  double communication = 0.0;  ///< collectives
  double transfers = 0.0;      ///< between device and host, and from and to drives
  double collectives = 0.0;    ///< their number
  /// Returns the seconds of the step in which the compute queue had nothing to do.
  double exposed() const { return seconds - compute; }
};

/// Returns the time of every step after the first one, where all ranks do the same work at the same
/// time. Work starts when its queue and what it waits for allow; collectives take the network one
/// after the other. @pre @p steps has two steps
StepTime step_time(train::PlannedSteps const& steps, Cluster const& cluster,
                   MachineProfile const& machine);

/// Returns the time of a step of ranks that differ in speed; its parts are those of a rank with
/// factors of 1.
StepTime step_time(train::PlannedSteps const& steps, Cluster const& cluster,
                   MachineProfile const& machine, std::vector<RankClass> const& classes);

/// Seconds of one piece of work without waiting.
double seconds_of(memory::PlannedWork const& work, std::string const& queue, Cluster const& cluster,
                  MachineProfile const& machine);

/// Returns the bytes of the activations of a product: of its two larger matrices.
double operand_bytes(memory::PlannedWork const& work);

}  // namespace tessera::plan
