#pragma once
/// Master weights and optimizer states of the region that this rank updates: a list of flat
/// buffers, each in a memory space and with a queue of its own choice.

#include <functional>
#include <memory>
#include <optional>
#include <string>
#include <vector>

#include "gradients/gradient_flow.hpp"
#include "gradients/offloaded_gradients.hpp"
#include "optimizer/host_update.hpp"
#include "optimizer/matrix_update.hpp"
#include "optimizer/parameter_sums.hpp"
#include "optimizer/quantized_state.hpp"
#include "optimizer/swapped_states.hpp"
#include "tessera/kernels/elementwise/gradient_statistics.hpp"
#include "tessera/memory/buffer.hpp"
#include "tessera/memory/device.hpp"
#include "tessera/optim/summing_optimizer.hpp"
#include "tessera/zero/optimizer/state_placement.hpp"
#include "transfer/shard_copies.hpp"

namespace tessera::zero::detail {

class OptimizerState {
 public:
  /// @param place chooses memory space and queue of each state; empty: those of the compute queue.
  /// The update reads states, master weights and gradients in one kernel, so a placement must name
  /// the compute queue's memory space, and one queue for all states.
  /// @throws InternalError for another placement
  struct Inputs {
    WeightStore& weights;
    GradientFlow& gradients;
    optim::Optimizer const& optimizer;
    /// Updates what is offloaded, else null: master weights and states of these units are in host
    /// memory. Outlives this.
    HostUpdate* host = nullptr;
    HostGradients* host_gradients = nullptr;
  };
  OptimizerState(StoreContext const& context, StageRules const& rules, Inputs const& inputs,
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
  using Direction = ShardDirection;
  /// Blocks the host. No effect on fp32 values in host memory.
  void copy_shards(std::size_t state, Direction direction);
  /// Whether host_shards() gives copies of all states that last until the next call.
  bool has_host_copies() const;
  /// Ends transfers to and from a drive: shards of swapped states are valid until the next update.
  void settle() {
    if (swapped_) swapped_->settle();
  }
  /// Frees the fp32 copies of states in host memory, unless has_host_copies().
  void release_copies();

  /// Of complete units, of an optimizer without tiles.
  optim::Segments const& segments(UnitIndex unit) const { return segments_[position(unit)]; }
  /// First fp32 value of a state of @p unit that this rank keeps.
  float* values(std::size_t state, UnitIndex unit) const {
    return static_cast<float*>(region(state, unit));
  }

  /// This rank's gradient shards, padding (zeros) included.
  std::vector<kernels::GradientRun> gradient_shards() const;
  Dtype gradient_dtype() const { return rules_.gradient_dtype; }

  /// Enqueues the sums of all parameters that the updates need, added over the ranks. No effect for
  /// other optimizers; otherwise collective.
  void sum(optim::StepControl const& control) const;
  /// Enqueues the update of @p unit. Later work of the compute queue reads the new weights.
  void update(UnitIndex unit, optim::StepControl const& control) const;
  /// Starts the update of all units by the host, while later work of the compute queue continues
  /// with the weights as they are. Their gradients stay until they are read.
  void start_updates(optim::StepControl const& control) const {
    host_->start_all(work_of_host(control));
  }
  /// Later work of the compute queue reads the weights of the update that was started. Called for
  /// all units in order.
  void finish_update(UnitIndex unit) const { host_->run(unit, {}); }

  /// Rounds this rank's shard of the master weights to the working weights, on the compute queue.
  void round_weights(UnitIndex unit) const;
  /// All-gathers the states that every rank holds in full: all of a replicated optimizer, and those
  /// that are not element-wise. Collective, blocks the host.
  enum class What { master_weights, all_states };
  void replicate(What what) const;

  std::size_t master_bytes() const {
    return states_[master_weights].buffer.bytes() + states_[master_weights].kept.bytes();
  }
  /// Without the master weights.
  std::size_t state_bytes() const {
    std::size_t sum = 0;
    for (auto const& state : states_)
      sum += state.coded ? state.coded->bytes() : state.buffer.bytes() + state.kept.bytes();
    return sum - master_bytes();
  }
  std::size_t host_bytes() const;  ///< of offloaded states, and of tiles of swapped ones
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
    /// Empty for master weights that are the working weights, and codes.
    memory::Buffer buffer = {};
    memory::Buffer kept = {};     ///< with offload: of the units that stay on the device
    std::int64_t kept_begin = 0;  ///< Ownership::state_offset() of the first of them
    std::shared_ptr<QuantizedState> coded = nullptr;  ///< of a state in codes
    memory::Buffer host_copy = {};                    ///< of this rank's shards
    std::optional<std::size_t> swapped = {};          ///< its number among the states on a drive
  };
  State make_state(optim::StateSpec const& spec, memory::Purpose purpose, bool is_allocated,
                   PlaceState const& place) const;
  void check_placement(State const& state) const;
  bool is_on_host(UnitIndex unit) const { return host_ && host_->has(unit); }
  void prepare_swap();
  void prepare_segments();
  void add_tile(std::size_t index, Tile const& tile);
  bool is_swappable(State const& state) const;
  void* values_of_tile(std::size_t tile, std::size_t state, std::int64_t at) const;
  /// Sums and matrices are of complete parameters: a tile is the region of a unit.
  bool updates_complete_units() const { return summing_ || matrix_; }
  void sum_unit(int round, UnitIndex unit, optim::StepControl const& control) const;
  HostUpdate::Work work_of_host(optim::StepControl const& control) const;
  void update_tile(memory::Queue& queue, std::size_t tile, optim::StepControl const& control) const;
  /// @param sums of the segments, for an optimizer that needs them
  void update(memory::Queue& queue, UnitIndex unit, optim::Segments const& segments,
              optim::ParameterSums const* sums, optim::StepControl const& control) const;
  Ownership ownership(State const& state) const;
  /// First value of the region of @p unit that this rank updates.
  void* region(std::size_t state, UnitIndex unit) const;
  void* shard(std::size_t state, UnitIndex unit) const;
  /// Of the elements from @p begin to @p end, in the region that this rank updates.
  optim::Segments segments_of(UnitIndex unit, UnitOffset begin, UnitOffset end) const;
  /// Where a state and the working weights have element `at` of the region.
  struct Places {
    std::function<void*(std::size_t state, std::int64_t at)> values;
    std::function<void*(std::int64_t at)> weights;
  };
  optim::Segments segments_of(UnitIndex unit, UnitOffset begin, UnitOffset end,
                              Places const& places) const;
  /// As optim::Segment::parameter_states.
  /// @param at the run's first element
  std::vector<void*> parameter_states(UnitIndex unit, std::size_t parameter, UnitOffset at) const;
  void* parameter_state(std::size_t state, UnitIndex unit, std::size_t parameter,
                        UnitOffset at) const;
  /// The state with the largest magnitudes of the chunks of a state in codes.
  std::size_t absmax_of(std::size_t state) const;
  /// Whether host_shards() gives a copy of a unit's shard, of any unit's.
  bool is_copied(State const& state, UnitIndex unit) const;
  bool has_copies(State const& state) const;
  memory::MemorySpace space_of(State const& state, UnitIndex unit) const;
  void prepare_sums();
  std::vector<optim::CompleteParameter> complete_parameters(UnitIndex unit) const;
  MatrixUpdate::Region matrix_region(UnitIndex unit, optim::Segments const& segments) const;
  /// Calls @p work(queue) after the compute queue's earlier work and before its later work.
  template <class Work>
  void on_update_queue(Work const& work) const;
  /// The same on the queue of the host's update where there is one.
  template <class Work>
  void on_sum_queue(Work const& work) const;

  StoreContext context_;
  StageRules rules_;
  WeightStore& weights_;
  GradientFlow& gradients_;
  HostUpdate* host_;               ///< null: nothing is offloaded
  HostGradients* host_gradients_;  ///< of what is
  optim::Optimizer const* optimizer_;
  optim::SummingOptimizer const* summing_;  ///< the optimizer, or null when it needs no sums
  std::vector<State> states_;
  std::unique_ptr<SwappedStates> swapped_;      ///< the states that are on a drive, or null
  std::vector<optim::Segments> segments_;       ///< per unit that has no tiles
  std::vector<optim::Segments> tile_segments_;  ///< of offloaded and swapped states
  std::vector<optim::ParameterSums> tile_sums_;
  /// Of a unit: the segments of the shard, where their sums are, and the region's.
  struct UnitSums {
    optim::Segments shard;
    optim::ParameterSums of_shard, of_region;
    std::vector<optim::CompleteParameter> parameters;
  };
  optim::MatrixOptimizer const* matrix_;  ///< the optimizer, or null when it needs no matrices
  std::unique_ptr<MatrixUpdate> matrices_;
  std::unique_ptr<ParameterSumBuffer> sums_;
  std::vector<UnitSums> unit_sums_;
};

}  // namespace tessera::zero::detail
