#pragma once
/// Which units the host updates while the model computes on a device, and in which tiles.

#include <cstdint>
#include <string>
#include <vector>

#include "layout/store_context.hpp"
#include "tessera/optim/optimizer.hpp"

namespace tessera::zero::detail {

/// Neighboring elements of the region of a unit.
struct Tile {
  UnitIndex unit = first_unit;
  std::int64_t begin = 0, numel = 0;
  bool operator==(Tile const&) const = default;
};

class TileList {
 public:
  /// Tiles begin at multiples of this many elements of their region: a page of fp32 values, and
  /// several chunks of quantized states.
  static constexpr std::int64_t alignment = 1024;

  /// @param region_numel elements of each unit's region
  /// @param max_numel most elements of a tile, before they are rounded up to the alignment
  TileList(std::vector<std::int64_t> const& region_numel, std::int64_t max_numel);

  std::vector<Tile> const& all() const { return tiles_; }
  Tile const& operator[](std::size_t tile) const { return tiles_[tile]; }
  std::size_t size() const { return tiles_.size(); }
  /// First and last tile of a unit, [first, end).
  std::size_t first(UnitIndex unit) const { return first_[position(unit)]; }
  std::size_t end(UnitIndex unit) const { return first_[position(unit) + 1]; }
  std::int64_t largest() const;

 private:
  std::vector<Tile> tiles_;
  std::vector<std::size_t> first_;  ///< first tile of each unit, and the end
};

/// Elements of the regions of the units before @p end.
std::vector<std::int64_t> region_numel(StoreContext const& context, UnitIndex end);

/// Tiles of the regions of the units before @p end: complete regions where the update needs
/// complete matrices, or sums over parameters whose states a drive holds.
TileList region_tiles(StoreContext const& context, optim::Optimizer const& optimizer,
                      UnitIndex end);

/// The host updates the first units; the others stay on the device (Twin-Flow).
struct Offload {
  Offload(StoreContext const& context, StageRules const& rules, optim::Optimizer const& optimizer);

  bool has(UnitIndex unit) const { return unit < end; }
  /// Elements of a rank's regions that the host updates.
  std::int64_t numel(Ownership const& ownership) const;

  UnitIndex end = first_unit;  ///< one after the last unit that the host updates
  TileList tiles;              ///< tiles of the units that the host updates
  int buffer_count = 0;
  std::int64_t delay_from = 0;                            ///< OptimizerOffload::delay_from
  memory::MemorySpace space = memory::MemorySpace::host;  ///< memory space of what crosses the link
};

}  // namespace tessera::zero::detail
