#pragma once
/// Where the master weights and optimizer states of consecutive units are: in the memory of the
/// compute queue, in host memory, or on a drive. An update opens a range, reads and writes its
/// values, and closes it; a checkpoint reads and writes this rank's shards.

#include <cstddef>
#include <memory>
#include <optional>
#include <vector>

#include "optimizer/quantized_state.hpp"
#include "optimizer/swapped_states.hpp"
#include "optimizer/update_schedule.hpp"
#include "transfer/weight_store.hpp"

namespace tessera::zero::detail {

/// Where every storage has the values of a state. working_weights: in the weights that the model
/// computes with, which are the master weights.
enum class StateHome { memory, drive, quantized, working_weights };

/// A state of the rank. States are numbered as in OptimizerSpec::state_names().
struct StateLayout {
  optim::StateSpec spec;
  std::shared_ptr<PartitionPlan const> plan;  ///< plan of its extent
  Ownership ownership;                        ///< in `plan`
  StateHome home = StateHome::memory;
};
inline constexpr std::size_t master_weights = 0;

/// What a storage has on a drive.
struct DriveUse {
  std::size_t file_bytes = 0;
  std::size_t buffer_bytes = 0;  ///< bytes of memory for the tiles that are open, read or written
  std::optional<SwapUse> swap = {};
};

class StateStorage {
 public:
  virtual ~StateStorage() = default;

  /// First value, or first code, of the region of @p unit that this rank updates, outside an
  /// update; first call finish_transfers(). Null where the state has none.
  virtual void* region(std::size_t state, UnitIndex unit) const = 0;
  /// The region for accesses outside the step, such as checkpoints.
  virtual void* region_outside_step(std::size_t state, UnitIndex unit) const {
    return region(state, unit);
  }
  /// First value of the range of @p step between open() and close().
  virtual void* values(std::size_t state, UpdateStep const& step) const = 0;
  /// The memory space of region(); another one than that of the compute queue only with offload.
  virtual memory::MemorySpace space(std::size_t state) const = 0;
  virtual std::size_t bytes(std::size_t state) const = 0;  ///< bytes of memory

  /// Later work of @p queue finds the values of the range. Ranges are opened and closed one after
  /// the other, all of them in each update.
  virtual void open(memory::Queue& queue, UpdateStep const& step) { (void)queue, (void)step; }
  using Values = SwappedStates::Values;
  /// Earlier work of @p queue has read the values of the range, and written them if they changed.
  virtual void close(memory::Queue& queue, UpdateStep const& step, Values values) {
    (void)queue, (void)step, (void)values;
  }
  /// Ends transfers to and from a drive: regions are valid until the next open().
  virtual void finish_transfers() {}
  virtual DriveUse drive_use() const { return {}; }
  /// The codes of a quantized state; null for other states.
  virtual QuantizedState* quantized(std::size_t state) const {
    (void)state;
    return nullptr;
  }
};

/// @p states and @p weights outlive the storage.
struct StorageInputs {
  std::vector<StateLayout> const& states;
  PartitionPlan const& plan;
  WeightStore& weights;
  memory::MemorySpace space;  ///< memory space of the values in memory
};
/// States of the units from @p begin to @p end whose home is the memory, and the working weights.
std::unique_ptr<StateStorage> make_memory_storage(StorageInputs const& inputs, UnitIndex begin,
                                                  UnitIndex end);
/// Adds the states of all units whose home is the drive. A tile has the number of its step.
/// @param inner has the states in memory
std::unique_ptr<StateStorage> make_drive_storage(StorageInputs const& inputs,
                                                 OptimizerSwap const& swap,
                                                 std::unique_ptr<StateStorage> inner);
/// Adds the quantized states of all units.
/// @param inner has the others
std::unique_ptr<StateStorage> make_quantized_storage(StorageInputs const& inputs,
                                                     std::unique_ptr<StateStorage> inner);

}  // namespace tessera::zero::detail
