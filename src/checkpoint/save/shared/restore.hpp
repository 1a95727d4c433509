#pragma once
/// Restoring from any (ranks, stage) onto any other: each rank reads the byte ranges it needs and
/// nothing else.

#include "tessera/checkpoint/format/manifest.hpp"
#include "tessera/checkpoint/format/states.hpp"
#include "tessera/comm/base/collectives.hpp"
#include "tessera/zero/engine/engine.hpp"

namespace tessera::checkpoint {

/// The manifest on every rank: rank 0 reads the file, the others get its text. All ranks throw when
/// one fails. Collective.
Manifest read_manifest(std::filesystem::path const& step_directory, comm::Collectives& comm);

/// @throws DataError naming the tensor when the checkpoint is of another model than the plan
void check_model(Manifest const& manifest, zero::PartitionPlan const& plan);

/// Says what one rank has read.
struct RestoreReport {
  std::int64_t bytes_needed = 0;  ///< bytes of the elements it took
  std::int64_t bytes_read = 0;    ///< from files: the chunks that hold them, as they are stored
  std::vector<NonFinite> nonfinite = {};  ///< after restore(): of all ranks
};

/// Fills this rank's @p states (padding: zeros) from the checkpoint. Every byte is checked against
/// its checksum; a chunk that is needed in part is read in full for that. Collective; all ranks
/// throw when one fails.
/// @throws DataError naming file and tensor: damage, missing or truncated shard, tensors or shapes
/// other than the plan's
/// @throws IoError when a file cannot be read
RestoreReport restore(Manifest const& manifest, zero::PartitionPlan const& plan,
                      StateViews const& states, comm::Collectives& comm);

/// The shards that hold what @p rank of the plan reads of states of these layers, ascending.
/// @throws DataError naming the tensor when the checkpoint is of another model than the plan
std::vector<int> shards_of(Manifest const& manifest, zero::PartitionPlan const& plan, Rank rank,
                           StateLayers const& layers);

/// Reads ranges of the master weights of a checkpoint, as restore() does: for an engine that keeps
/// no states. @throws DataError naming the tensor when the checkpoint is of another model than the
/// plan, IoError and DataError while it reads
zero::Engine::Fill weights_of(Manifest const& manifest, zero::PartitionPlan const& plan);

/// The counts of all ranks, on every rank. Collective.
std::vector<NonFinite> merge_nonfinite(std::vector<NonFinite> const& mine, comm::Collectives& comm);

/// The part of one rank of the plan, without communication.
RestoreReport restore_rank(Manifest const& manifest, zero::PartitionPlan const& plan, Rank rank,
                           StateViews const& states);

}  // namespace tessera::checkpoint
