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
};

class TileList {
 public:
  /// Tiles begin at multiples of this many elements of their region: a page of fp32 values, and
  /// several chunks of states in codes.
  static constexpr std::int64_t alignment = 1024;

  /// @param region_numel elements of each unit's region
  TileList(std::vector<std::int64_t> const& region_numel, std::int64_t most);

  std::vector<Tile> const& all() const { return tiles_; }
  Tile const& operator[](std::size_t tile) const { return tiles_[tile]; }
  std::size_t size() const { return tiles_.size(); }
  /// First and last tile of a unit, [first, end).
  std::size_t first(UnitIndex unit) const { return first_[position(unit)]; }
  std::size_t end(UnitIndex unit) const { return first_[position(unit) + 1]; }
  std::int64_t largest() const;

 private:
  std::vector<Tile> tiles_;
  std::vector<std::size_t> first_;  ///< of each unit, and the end
};

/// Updated by the host: the first units; the others stay on the device (Twin-Flow).
struct Offload {
  /// Tiles of a matrix optimizer are complete regions.
  Offload(StoreContext const& context, StageRules const& rules, optim::Optimizer const& optimizer);

  bool has(UnitIndex unit) const { return unit < end; }
  /// Elements of a rank's regions that the host updates.
  std::int64_t numel(Ownership const& ownership) const;

  UnitIndex end = first_unit;  ///< one after the last unit that the host updates
  TileList tiles;              ///< of those units
  int buffer_count = 0;
  std::int64_t delay_from = 0;                            ///< OptimizerOffload::delay_from
  memory::MemorySpace space = memory::MemorySpace::host;  ///< of what crosses the link
};

}  // namespace tessera::zero::detail
