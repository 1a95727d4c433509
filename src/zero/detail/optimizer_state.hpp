#pragma once
/// Master weights and optimizer states of the region that this rank updates: a list of flat
/// buffers, each in a memory space and with a queue of its own choice.

#include <algorithm>
#include <functional>
#include <memory>
#include <optional>
#include <string>
#include <vector>

#include "detail/coded_state.hpp"
#include "detail/comm_buffer.hpp"
#include "detail/gradient_flow.hpp"
#include "detail/swapped_states.hpp"
#include "tessera/kernels/gradient_statistics.hpp"
#include "tessera/memory/buffer.hpp"
#include "tessera/memory/device.hpp"
#include "tessera/optim/matrix_optimizer.hpp"
#include "tessera/optim/summing_optimizer.hpp"

namespace tessera::zero::detail {

class OptimizerState {
 public:
  /// @param place chooses memory space and queue of each state; empty: those of the compute queue.
  /// The update reads states, master weights and gradients in one kernel, so a placement must name
  /// the compute queue's memory space, and one queue for all states.
  /// @throws InternalError for another placement
  OptimizerState(StoreContext const& context, StageRules const& rules, WeightStore& weights,
                 GradientFlow& gradients, optim::Optimizer const& optimizer,
                 PlaceState const& place = {});

  /// Another one of the same algorithm and states, which outlives this or the next call.
  void set_optimizer(optim::Optimizer const& optimizer);

  /// States are numbered as in OptimizerSpec::state_names(): 0 is the master weights.
  std::size_t count() const { return states_.size(); }
  optim::StateSpec const& spec(std::size_t state) const { return states_[state].spec; }
  PartitionPlan const& plan(std::size_t state) const { return *states_[state].plan; }
  static constexpr std::size_t master_weights = 0;

  /// This rank's shard of each unit as fp32 values in host memory: the state itself, or a copy of a
  /// state in another memory space, in 16 bits or in codes, which copy_shards() synchronizes. The
  /// copy is allocated by the first call.
  std::vector<float*> host_shards(std::size_t state);
  enum class Direction { to_host, to_state };
  /// Blocks the host. No effect on fp32 values in host memory.
  void copy_shards(std::size_t state, Direction direction);
  /// Whether host_shards() gives copies of all states that last until the next call.
  bool has_host_copies() const { return std::all_of(states_.begin(), states_.end(), is_copied); }
  /// Ends transfers to and from a drive: shards of swapped states are valid until the next update.
  void settle() {
    if (swapped_) swapped_->settle();
  }
  /// Frees the fp32 copies of states in host memory, unless has_host_copies().
  void release_copies() {
    if (has_host_copies()) return;
    for (auto& state : states_)
      if (state.placement.space == memory::MemorySpace::host) state.host_copy = {};
  }

  /// This rank's gradient shards, padding (zeros) included.
  std::vector<kernels::GradientRun> gradient_shards() const;
  Dtype gradient_dtype() const { return rules_.gradient_dtype; }

  /// Enqueues the sums of all parameters that the updates need, added over the ranks. No effect for
  /// other optimizers; otherwise collective.
  void sum(optim::StepControl const& control) const;
  /// Enqueues the update of @p unit. Later work of the compute queue reads the new weights.
  void update(UnitIndex unit, optim::StepControl const& control) const;

  /// Rounds this rank's shard of the master weights to the working weights, on the compute queue.
  void round_weights(UnitIndex unit) const;
  /// All-gathers the states that every rank holds in full: all of a replicated optimizer, and those
  /// that are not element-wise. Collective, blocks the host.
  enum class What { master_weights, all_states };
  void replicate(What what) const;

  std::size_t master_bytes() const { return states_[master_weights].buffer.bytes(); }
  /// Without the master weights.
  std::size_t state_bytes() const {
    std::size_t sum = 0;
    for (auto const& state : states_)
      sum += state.coded ? state.coded->bytes() : state.buffer.bytes();
    return sum - master_bytes();
  }
  std::size_t swap_buffer_bytes() const { return swapped_ ? swapped_->buffer_bytes() : 0; }
  std::size_t swapped_bytes() const { return swapped_ ? swapped_->file_bytes() : 0; }
  std::optional<SwapUse> swap_use() const {
    return swapped_ ? std::optional<SwapUse>(swapped_->use()) : std::nullopt;
  }

 private:
  struct State {
    optim::StateSpec spec;
    std::shared_ptr<PartitionPlan const> plan;  ///< of its extent
    StatePlacement placement;
    memory::Buffer buffer;  ///< empty for master weights that are the working weights, and codes
    std::shared_ptr<CodedState> coded = nullptr;  ///< of a state in codes
    memory::Buffer host_copy;                     ///< of this rank's shards
    std::optional<std::size_t> swapped = {};      ///< its number among the states on a drive
  };
  State make_state(optim::StateSpec const& spec, memory::Purpose purpose, bool is_allocated,
                   PlaceState const& place) const;
  void check_placement(State const& state) const;
  void prepare_swap();
  bool is_swappable(State const& state) const;
  void* values_of_tile(std::size_t tile, std::size_t state, std::int64_t at) const;
  /// Sums and matrices are of complete parameters: a tile is the region of a unit.
  bool updates_complete_units() const { return summing_ || matrix_; }
  bool segments_are_of_units() const { return !swapped_ || updates_complete_units(); }
  template <class Work>
  void with_tile(memory::Queue& queue, UnitIndex unit, SwappedStates::Values values,
                 Work const& work) const;
  void sum_unit(int round, UnitIndex unit, optim::StepControl const& control) const;
  void update_tiles(memory::Queue& queue, UnitIndex unit, optim::StepControl const& control) const;
  Ownership ownership(State const& state) const;
  /// First value of the region of @p unit that this rank updates.
  void* region(std::size_t state, UnitIndex unit) const;
  void* shard(std::size_t state, UnitIndex unit) const;
  /// Of the elements from @p begin to @p end, in the region that this rank updates.
  optim::Segments segments_of(UnitIndex unit, UnitOffset begin, UnitOffset end) const;
  /// Where a state has element @p at of the region.
  using ValuesAt = std::function<void*(std::size_t state, std::int64_t at)>;
  optim::Segments segments_of(UnitIndex unit, UnitOffset begin, UnitOffset end,
                              ValuesAt const& values) const;
  /// As optim::Segment::parameter_states.
  /// @param at the run's first element
  std::vector<void*> parameter_states(UnitIndex unit, std::size_t parameter, UnitOffset at) const;
  void* parameter_state(std::size_t state, UnitIndex unit, std::size_t parameter,
                        UnitOffset at) const;
  /// The state with the largest magnitudes of the chunks of a state in codes.
  std::size_t absmax_of(std::size_t state) const;
  static bool is_copied(State const& state) {
    return state.spec.dtype != Dtype::fp32 || state.placement.space == memory::MemorySpace::device;
  }
  void copy_half_shards(std::size_t state, Direction direction);
  void prepare_sums();
  optim::ParameterSums sums_of(UnitIndex unit, UnitOffset begin, UnitOffset end) const;
  std::vector<optim::CompleteParameter> complete_parameters(UnitIndex unit) const;
  std::vector<double*> sums_of_rounds(UnitIndex unit, std::size_t parameter) const;
  void add_over_ranks(memory::Queue& queue, int round) const;
  void prepare_matrices();
  void update_matrices(memory::Queue& queue, UnitIndex unit,
                       optim::StepControl const& control) const;
  /// Calls @p work(queue) after the compute queue's earlier work and before its later work.
  template <class Work>
  void on_update_queue(Work const& work) const;

  StoreContext context_;
  StageRules rules_;
  WeightStore& weights_;
  GradientFlow& gradients_;
  optim::Optimizer const* optimizer_;
  optim::SummingOptimizer const* summing_;  ///< the optimizer, or null when it needs no sums
  std::vector<State> states_;
  std::unique_ptr<SwappedStates> swapped_;  ///< the states that are on a drive, or null
  std::vector<optim::Segments> segments_;   ///< per unit, or per tile: segments_are_of_units()
  /// Of a unit: the segments of the shard, where their sums are, and the region's.
  struct UnitSums {
    optim::Segments shard;
    optim::ParameterSums of_shard, of_region;
    std::vector<optim::CompleteParameter> parameters;
  };
  optim::MatrixOptimizer const* matrix_;  ///< the optimizer, or null when it needs no matrices
  CommBuffer directions_;                 ///< of a complete unit
  memory::Buffer matrix_workspace_;
  /// A matrix that this rank updates a part of.
  struct Matrix {
    std::int64_t offset = 0;  ///< in directions_
    std::vector<std::int64_t> shape;
  };
  std::vector<std::vector<Matrix>> matrices_;  ///< per unit
  CommBuffer sums_;                            ///< round by round, each of all parameters
  std::vector<std::int64_t> round_begins_;     ///< of each round in sums_, and the end
  std::vector<std::vector<std::vector<std::int64_t>>> sum_offsets_;  ///< [round][unit][parameter]
  std::vector<UnitSums> unit_sums_;
};

}  // namespace tessera::zero::detail
