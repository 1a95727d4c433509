#pragma once
/// Master weights and optimizer states of the regions that this rank updates, and the storage of
/// each unit's.

#include <array>
#include <cstddef>
#include <memory>
#include <vector>

#include "optimizer/state_storage.hpp"

namespace tessera::zero::detail {

/// The layouts of the master weights and of the optimizer's states.
std::vector<StateLayout> state_layouts(StoreContext const& context, StageRules const& rules,
                                       optim::OptimizerSpec const& spec);

/// Memory space of the states, and the queue that reads and writes them outside the update; of
/// tiled units where there are some.
struct StatePlacement {
  memory::MemorySpace space;
  memory::Queue* queue;
};

class StateTable {
 public:
  StateTable(StoreContext const& context, std::vector<StateLayout> layouts, WeightStore& weights,
             TiledUnits const& tiled, StatePlacement const& placement);
  StateTable(StateTable const&) = delete;
  StateTable& operator=(StateTable const&) = delete;

  std::size_t count() const { return layouts_.size(); }
  StateLayout const& operator[](std::size_t state) const { return layouts_[state]; }
  optim::StateSpec const& spec(std::size_t state) const { return layouts_[state].spec; }
  StatePlacement const& placement() const { return placement_; }

  /// The storage of the steps that name it.
  StateStorage& storage(StorageKind kind) const { return *storages_[static_cast<int>(kind)]; }
  StateStorage& storage(UnitIndex unit) const {
    return storage(unit < tiled_end_ ? tiled_kind_ : StorageKind::resident);
  }
  /// The codes of a quantized state of all units; null for other states.
  QuantizedState* quantized(std::size_t state) const {
    return storage(first_unit).quantized(state);
  }

  /// First value of the region of @p unit that this rank updates.
  void* region(std::size_t state, UnitIndex unit) const {
    return storage(unit).region(state, unit);
  }
  /// First value of this rank's shard, for accesses outside the step.
  void* shard(std::size_t state, UnitIndex unit) const;
  /// Ends transfers to and from a drive: regions are valid until the next update.
  void finish_transfers() const;

  std::size_t bytes(std::size_t state) const;  ///< bytes of memory
  std::size_t optimizer_bytes() const;         ///< bytes of all states but the master weights
  /// Bytes of all states in host memory, with the tiles of a drive
  std::size_t host_bytes() const;
  DriveUse drive_use() const { return storage(first_unit).drive_use(); }

 private:
  std::vector<StateLayout> layouts_;
  StatePlacement placement_;
  UnitIndex tiled_end_;  ///< the units before have storage `tiled_kind_`
  StorageKind tiled_kind_;
  std::array<std::unique_ptr<StateStorage>, 3> storages_;  ///< by StorageKind; null: no unit has it
};

}  // namespace tessera::zero::detail
