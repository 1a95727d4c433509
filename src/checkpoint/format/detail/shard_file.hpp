#pragma once
/// A shard file of one rank or several: the HDF5 structure first, then the data at the datasets'
/// offsets.

#include <filesystem>
#include <string>
#include <vector>

#include "tessera/checkpoint/format/manifest.hpp"
#include "tessera/checkpoint/format/states.hpp"
#include "tessera/core/rank.hpp"

namespace tessera::checkpoint::detail {

/// Ranks that follow each other and share a shard file. Their parts of a tensor are one run of its
/// elements and one dataset.
struct RankGroup {
  int index = 0;  ///< index of the file
  Rank first = first_rank;
  int count = 1;
  Rank end() const { return Rank(value(first) + count); }
};
/// @param starts the first rank of every file, ascending from 0; empty: a file for each rank
std::vector<RankGroup> rank_groups(int ranks, std::vector<Rank> const& starts);
RankGroup group_of(Rank rank, int ranks, std::vector<Rank> const& starts);

/// Root attributes, the same in all shards of a checkpoint but for the ranks.
struct ShardIdentity {
  std::string run_id;
  std::int64_t step = 0;
  RankGroup group;
  int ranks = 0;  ///< ranks of the run
  int zero_stage = 0;
};

/// What the ranks of a file own of one tensor: a run of its elements, one dataset for each state.
struct RunLayout {
  std::vector<std::string> states;
  std::string name;                 ///< name of the tensor
  std::vector<std::int64_t> shape;  ///< shape of the tensor
  std::int64_t offset = 0, numel = 0;
  std::vector<std::int64_t> part_ranks,
      part_offsets;  ///< owners, and the first element of what each owns
};

struct ShardLayout {
  ShardIdentity identity;
  std::vector<std::string> states;
  std::vector<RunLayout> runs;
};

/// An uncompressed file without elements, its space reserved. @throws IoError
void create_shard(std::filesystem::path const& file, ShardLayout const& layout);
/// Where HDF5 placed each [run][state] of it.
std::vector<std::vector<std::int64_t>> read_places(std::filesystem::path const& file,
                                                   ShardLayout const& layout);

/// What one rank wrote: the size of its file and, for each extent of the plan, where each state
/// lies and its checksums.
struct WrittenShard {
  std::int64_t bytes = 0;
  /// [extent][state]: the extents of every layer, and the states of that layer.
  std::vector<std::vector<StateLocation>> extents;
  /// Values that are not finite.
  struct Bad {
    std::size_t extent = 0, state = 0;
    std::int64_t count = 0;
  };
  std::vector<Bad> nonfinite = {};
  std::int64_t microseconds = 0;  ///< that the rank took to write it

  /// Packs the record into flat bytes, which another rank unpacks.
  std::string pack() const;
  static WrittenShard unpack(std::string const& bytes);
};

/// The HDF5 structure of @p file for all ranks of the group, with its space reserved; no element.
/// @throws IoError
void create_shard_structure(std::filesystem::path const& file, ShardIdentity const& identity,
                            zero::PartitionPlan const& plan, StateLayers const& layers);
/// Writes and syncs the part of @p rank in a file that is laid out; other ranks may do the same
/// with theirs. @throws IoError
WrittenShard fill_shard(std::filesystem::path const& file, ShardIdentity const& identity,
                        zero::PartitionPlan const& plan, Rank rank, StateViews const& states,
                        std::int64_t checksum_chunk);
/// Fills a shard with elements that are made as they are written, one checksum chunk at a time, so
/// that states may be larger than memory.
WrittenShard fill_shard(std::filesystem::path const& file, ShardIdentity const& identity,
                        zero::PartitionPlan const& plan, Rank rank, StreamedStates const& states,
                        std::int64_t checksum_chunk);

/// An extent of the states of a layer.
struct LayerExtent {
  std::size_t layer = 0;
  zero::ShardExtent extent;
};
/// Returns the extents of @p rank in the order of WrittenShard::extents.
std::vector<LayerExtent> layer_extents(zero::PartitionPlan const& plan, StateLayers const& layers,
                                       Rank rank);

/// First element of an extent in a state view. @param plan of the view's layer
float* extent_data(zero::StateView const& view, zero::PartitionPlan const& plan,
                   zero::ShardExtent const& extent);

std::string shard_name(int index);

}  // namespace tessera::checkpoint::detail
