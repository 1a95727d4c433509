#pragma once
/// Checkpoints in the memory of the nodes, in the format of those on disk. Each node has a
/// directory on tmpfs, which outlives its ranks, with the shards of its ranks and copies of the
/// shards of the node before it. The directories of all nodes together hold every shard twice. Who
/// writes them: background_saver.hpp.

#include <cstdint>
#include <filesystem>
#include <limits>
#include <optional>
#include <string>
#include <vector>

#include "tessera/checkpoint/format/manifest.hpp"
#include "tessera/checkpoint/format/states.hpp"
#include "tessera/comm/base/collectives.hpp"
#include "tessera/zero/layout/partition_plan.hpp"

namespace tessera::checkpoint {

/// Complete checkpoints that a node keeps.
inline constexpr int memory_generations = 2;

struct NodeMemory {
  std::filesystem::path directory;  ///< the directory of this rank's node
  std::vector<int> node_of;         ///< node of every rank, from 0 on
  int nodes() const;
  /// The lowest rank of a node makes and removes directories.
  bool leads(int rank) const;
  /// The ranks of @p node, ascending.
  std::vector<int> ranks_of(int node) const;
};

/// A shard that one rank sends to another one, whose node keeps a copy.
struct ShardTransfer {
  int shard = 0, from = 0, to = 0;
  bool operator==(ShardTransfer const&) const = default;
};

/// The shards of the first @p writers ranks, each to a rank of the next node; none for one node.
/// The sends of even nodes come first, so that the ring is not one chain of transfers.
std::vector<ShardTransfer> ring_transfers(NodeMemory const& memory, int writers);

/// A checkpoint in memory whose shards all have an undamaged copy.
struct Generation {
  Manifest manifest;  ///< its directory is that of this rank's node
  /// The nodes that have an undamaged copy of each shard.
  std::vector<std::vector<int>> holders;
  bool has(int node, int shard) const;
};

/// The steps of the checkpoints that are wanted: after < step < before.
struct StepRange {
  std::int64_t after = -1, before = std::numeric_limits<std::int64_t>::max();
};

/// The newest checkpoint in memory whose shards all have an undamaged copy on some node. Every copy
/// is read and compared with its checksums; the log names a damaged one. The same result on every
/// rank, except for the directory. Collective.
std::optional<Generation> find_generation(NodeMemory const& memory, StepRange const& steps,
                                          comm::Collectives& comm);

/// Copies what this rank reads and its node lacks from the nodes that have it. Collective.
/// @return the files that this rank has received: the caller removes them after the restore
/// @throws DataError on every rank when a copy arrives damaged or has no room
std::vector<std::filesystem::path> fetch_shards(Generation const& generation,
                                                NodeMemory const& memory,
                                                zero::PartitionPlan const& plan,
                                                StateLayers const& layers, comm::Collectives& comm);

/// Removes checkpoints of steps after @p step, which the run computes again, and what interrupted
/// saves have left. On ranks that do not lead their node nothing happens.
void forget_after(NodeMemory const& memory, std::int64_t step, comm::Collectives const& comm);

/// How often the states of a rank are in files: its own and, with several nodes, those of another
/// rank, of each checkpoint that is kept.
constexpr int memory_copies(int nodes) { return memory_generations * (nodes > 1 ? 2 : 1); }
/// Checks that the checkpoints of all ranks of this node fit into its directory and its memory.
/// @param snapshots  of the states per rank, in host memory (0 or 1)
/// @throws OutOfMemoryError on every rank, with the numbers
void require_memory(NodeMemory const& memory, std::size_t state_bytes, int snapshots,
                    comm::Collectives& comm);

}  // namespace tessera::checkpoint
