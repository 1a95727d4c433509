#pragma once
/// A compact layout over the ranks in two ways: the run that each rank owns in the unit, of any
/// length, and equal blocks, which collectives take.

#include <algorithm>
#include <cstdint>

#include "layout/compact_layout.hpp"
#include "tessera/comm/base/collectives.hpp"
#include "tessera/core/rounding.hpp"

namespace tessera::zero::detail {

class CompactBlocks {
 public:
  CompactBlocks(CompactLayout const& layout, UnitLayout const& unit, int ranks)
      : layout_(layout), unit_(unit), ranks_(ranks), block_(numel_of(layout.numel(), ranks)) {}

  /// Elements of an equal block: full cache lines.
  static std::int64_t numel_of(std::int64_t numel, int ranks) {
    return round_up(ceil_divide(numel, ranks), PartitionPlan::default_alignment);
  }
  std::int64_t block() const { return block_; }
  std::int64_t all_blocks() const { return block_ * ranks_; }

  UnitOffset shard_begin(int rank) const { return UnitOffset(rank * unit_.shard_numel); }
  /// A rank owns [run_begin(rank), run_begin(rank + 1)) of the layout.
  std::int64_t run_begin(int rank) const { return layout_.place_of(shard_begin(rank)); }
  std::int64_t run_numel(int rank) const { return run_begin(rank + 1) - run_begin(rank); }

  /// The parts of a rank's block by owner, from the block's begin.
  comm::Parts owners_of_block(int rank) const {
    comm::Parts out;
    for (int q = 0; q < ranks_; ++q) add(out, rank, q, rank * block_);
    return out;
  }
  /// The parts of a rank's run by block, from the run's begin.
  comm::Parts blocks_of_run(int rank) const {
    comm::Parts out;
    for (int q = 0; q < ranks_; ++q) add(out, q, rank, run_begin(rank));
    return out;
  }

 private:
  void add(comm::Parts& parts, int of_block, int of_run, std::int64_t origin) const {
    std::int64_t const begin = std::max(of_block * block_, run_begin(of_run)),
                       end = std::min((of_block + 1) * block_, run_begin(of_run + 1));
    parts.counts.push_back(std::max<std::int64_t>(0, end - begin));
    parts.offsets.push_back(end > begin ? begin - origin : 0);
  }

  CompactLayout const& layout_;
  UnitLayout const& unit_;
  int ranks_;
  std::int64_t block_;
};

}  // namespace tessera::zero::detail
