#pragma once
/// The order in which this rank updates its master weights and optimizer states, as a value: which
/// ranges of which units, where their states are, and which queue updates them.

#include <cstddef>
#include <cstdint>
#include <span>
#include <vector>

#include "layout/offload.hpp"
#include "layout/store_context.hpp"
#include "tessera/optim/optimizer.hpp"

namespace tessera::zero::detail {

/// Where the states of a unit are. resident: in the memory space of the compute queue. host: in
/// host memory while the model computes on a device. drive: in swap files, and in memory only while
/// their range is updated.
enum class StorageKind { resident, host, drive };

/// compute: the update runs in the order of the compute queue. worker: on the queue of HostUpdate.
enum class UpdateQueue { compute, worker };

/// The update of one range.
struct UpdateStep {
  std::size_t index = 0;  ///< in the schedule; a tile has the same number in every list of tiles
  Tile range;
  StorageKind storage = StorageKind::resident;
  UpdateQueue queue = UpdateQueue::compute;
  bool operator==(UpdateStep const&) const = default;
};

/// The first units, which are updated tile by tile because the host updates them or a drive holds
/// their states.
struct TiledUnits {
  UnitIndex end = first_unit;  ///< one after the last of them
  TileList tiles{{}, 1};
  StorageKind storage = StorageKind::resident;
  UpdateQueue queue = UpdateQueue::compute;
};

/// @param host_end one after the last unit that the host updates while a device computes
TiledUnits tiled_units(StoreContext const& context, optim::Optimizer const& optimizer,
                       UnitIndex host_end);

class UpdateSchedule {
 public:
  /// Tiles of the first units, in order, and then one step for each other unit.
  /// @param region_numel elements of each unit that this rank updates
  UpdateSchedule(std::vector<std::int64_t> const& region_numel, TiledUnits const& tiled);

  std::vector<UpdateStep> const& steps() const { return steps_; }
  UpdateStep const& operator[](std::size_t index) const { return steps_[index]; }
  /// The queue that updates a unit.
  UpdateQueue queue(UnitIndex unit) const {
    return of(unit).empty() ? UpdateQueue::compute : of(unit).front().queue;
  }
  /// The steps of a unit; none for a tiled unit without elements.
  std::span<UpdateStep const> of(UnitIndex unit) const {
    return std::span(steps_).subspan(first_[position(unit)],
                                     first_[position(unit) + 1] - first_[position(unit)]);
  }

 private:
  std::vector<UpdateStep> steps_;
  std::vector<std::size_t> first_;  ///< first step of each unit, and the end
};

/// The combinations of storage, rule and schedule that do not exist.

}  // namespace tessera::zero::detail
