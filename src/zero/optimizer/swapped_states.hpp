#pragma once
/// Element-wise states of the optimizer that a drive holds. Tiles of all states stream through a
/// few buffers in the order of the update: later tiles are read and earlier ones written meanwhile.
/// Rajbhandari et al., "ZeRO-Infinity: Breaking the GPU Memory Wall for Extreme Scale Deep
/// Learning", SC'21, section 5 and 6.

#include <cstdint>
#include <memory>
#include <string>
#include <vector>

#include "layout/offload.hpp"
#include "tessera/memory/buffer.hpp"
#include "tessera/memory/swap_transfers.hpp"
#include "tessera/zero/layout/offload_config.hpp"

namespace tessera::zero::detail {

class SwappedStates {
 public:
  /// The part of a unit that this rank updates.
  struct Region {
    std::string unit;
    std::int64_t numel = 0;
  };
  /// @throws IoError when the drive has no room, OutOfMemoryError
  SwappedStates(OptimizerSwap const& swap, std::vector<std::string> const& names,
                std::vector<Region> const& regions);

  /// The region of @p unit as memory, for accesses outside the update. First call
  /// finish_transfers().
  float* region(std::size_t state, UnitIndex unit) const;
  /// Ends the transfers, so that the regions hold the values.
  void finish_transfers();

  std::vector<Tile> const& tiles() const { return tiles_.all(); }
  /// First and last tile of a unit, [first, end).
  std::size_t first_tile(UnitIndex unit) const { return tiles_.first(unit); }
  std::size_t end_tile(UnitIndex unit) const { return tiles_.end(unit); }
  /// Address of the values of a tile between acquire() and release().
  float* values(std::size_t tile, std::size_t state) const;

  /// Later work of @p queue finds the values of @p tile in its buffer. Tiles are acquired and
  /// released one after the other, all of them in each update.
  void acquire(memory::Queue& queue, std::size_t tile);
  /// After the earlier work of @p queue the values go to the drive, unless they are unchanged.
  enum class Values { changed, unchanged };
  void release(memory::Queue& queue, std::size_t tile, Values values = Values::changed);

  std::size_t file_bytes() const;    ///< on the drive
  std::size_t buffer_bytes() const;  ///< bytes of memory
  SwapUse use() const;

 private:
  using Pending = memory::SwapTransfers::Pending;
  struct TileBuffer {
    bool is_taken = false;  ///< by a tile that is read or used
    Pending ready;          ///< the reads of that tile
    Pending free;           ///< the writes of the previous tile
  };
  TileBuffer& buffer_of(std::size_t tile) { return buffers_[tile % buffers_.size()]; }
  void read_ahead();
  std::size_t file_offset(Tile const& tile) const;

  TileList tiles_;
  std::int64_t tile_numel_ = 0;                           ///< size of the buffer of a tile
  std::vector<std::int64_t> unit_offsets_;                ///< in a file, elements
  std::vector<std::unique_ptr<memory::SwapFile>> files_;  ///< files of each state
  memory::Buffer memory_;
  std::vector<TileBuffer> buffers_;
  std::size_t next_ = 0;             ///< tile to acquire
  std::size_t ahead_ = 0;            ///< tiles from there on that are read or being read
  bool is_mapped_ = true;            ///< regions may have changed since the last update
  memory::SwapTransfers transfers_;  ///< ends before the buffers and files
};

}  // namespace tessera::zero::detail
