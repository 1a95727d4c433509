#pragma once
/// What a save to memory and a restore from it do with shard files: moving them between nodes,
/// checking them, and the order of the directories of a node.

#include <filesystem>
#include <vector>

#include "tessera/checkpoint/save/node_memory.hpp"
#include "tessera/checkpoint/save/save.hpp"

namespace tessera::checkpoint::detail {

/// Reads a shard of the manifest's directory and compares it with the checksums.
/// @throws DataError naming file, tensor, state and bytes; IoError
void check_shard(Manifest const& manifest, int shard);

/// Sends and receives shards between the directories of the nodes. Ranks that have no part in a
/// transfer pass over it; all ranks have the same list. An error of a file shows after the last
/// message of this rank. @throws IoError on this rank only
void carry_out(std::vector<ShardTransfer> const& transfers, Manifest const& manifest,
               comm::Collectives& comm);

/// An empty directory for a checkpoint. Removes all others but the newest complete one.
/// @return the directory. @throws IoError
std::filesystem::path prepare_in_memory(SaveRequest const& request);

}  // namespace tessera::checkpoint::detail
