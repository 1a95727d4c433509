#pragma once
/// This rank's shards of all states as fp32 values in host memory, as checkpoints have them: the
/// states themselves, or copies of states that are in another memory space, in 16 bits or
/// quantized.

#include <cstddef>
#include <vector>

#include "optimizer/state_table.hpp"
#include "transfer/shard_copies.hpp"

namespace tessera::zero::detail {

class StateShards {
 public:
  /// @param queue for copies of the memory of a device
  StateShards(StateTable const& states, memory::Queue& queue)
      : states_(states), queue_(queue), copies_(states.count()) {}

  /// The shard of each unit. The first call allocates the copy if there is one.
  std::vector<float*> host(std::size_t state);
  /// Brings the copies up to date, or the state from them. Blocks the host. No effect on shards
  /// that are the state itself.
  void copy(std::size_t state, ShardDirection direction);
  /// Whether host() gives copies of all states, which last until the next copy().
  bool are_copies() const;
  /// Frees the copies of states in host memory, unless are_copies().
  void release();

 private:
  PartitionPlan const& plan(std::size_t state) const { return *states_[state].plan; }
  bool is_copied(std::size_t state, UnitIndex unit) const;
  bool has_copies(std::size_t state) const;
  void copy_quantized(std::size_t state, ShardDirection direction);

  StateTable const& states_;
  memory::Queue& queue_;
  std::vector<memory::Buffer> copies_;  ///< copies of each state
};

}  // namespace tessera::zero::detail
