#pragma once
/// fp32 masters and AdamW moments of the region that this rank updates, and the update itself.

#include <array>
#include <functional>
#include <vector>

#include "detail/gradient_flow.hpp"
#include "tessera/kernels/adamw.hpp"
#include "tessera/memory/buffer.hpp"
#include "tessera/memory/device.hpp"

namespace tessera::zero::detail {

class OptimizerState {
 public:
  OptimizerState(StoreContext const& context, StageRules const& rules, WeightStore& weights,
                 GradientFlow& gradients);

  /// This rank's shard of each unit: in the weights themselves when they are fp32, else separate.
  float* master_shard(int unit) const {
    return master(unit) + context_.ownership.shard_offset(unit);
  }
  float* exp_avg_shard(int unit) const {
    return at(exp_avg_, unit) + context_.ownership.shard_offset(unit);
  }
  float* exp_avg_sq_shard(int unit) const {
    return at(exp_avg_sq_, unit) + context_.ownership.shard_offset(unit);
  }

  /// This rank's shard of each unit in host memory: the state itself on the host; a copy when the
  /// state is on a device, which copy_shards() brings up to date and back. The copy is made when
  /// first asked for and kept.
  enum class Part { master, exp_avg, exp_avg_sq };
  enum class Direction { to_host, to_device };
  std::vector<float*> host_shards(Part part);
  bool has_mirrors() const { return space_ == memory::MemorySpace::device; }
  /// Blocks the host; nothing to do when the state is on the host.
  void copy_shards(Part part, Direction direction);

  /// This rank's gradient shards, padding (zeros) included.
  std::vector<kernels::GradientRun> gradient_shards() const;
  Dtype gradient_dtype() const { return rules_.gradient_dtype; }

  /// Updates @p unit on the compute queue as step @p t, as @p control says when the kernels run.
  void update(int unit, std::int64_t t, double learning_rate,
              kernels::StepControl const* control) const;

  /// Working weights of this rank's shard from its master.
  void round_weights(int unit) const;
  /// Brings every rank's part of the replicated state to all; nothing when the state is sharded.
  /// Collective, blocks the host.
  enum class What { masters, masters_and_moments };
  void replicate(What what) const;

  std::size_t master_bytes() const { return master_.bytes(); }
  std::size_t moment_bytes() const { return exp_avg_.bytes() + exp_avg_sq_.bytes(); }

 private:
  float* at(memory::Buffer const& state, int unit) const {
    return static_cast<float*>(state.data()) + context_.ownership.state_offset(unit);
  }
  float* master(int unit) const;
  float* shard(Part part, int unit) const;
  std::vector<kernels::AdamWSegment> segments_of(int unit) const;

  StoreContext context_;
  StageRules rules_;
  WeightStore& weights_;
  GradientFlow& gradients_;
  memory::MemorySpace space_;  ///< where the compute queue's kernels want their operands
  memory::Buffer master_, exp_avg_, exp_avg_sq_;
  std::array<memory::Buffer, 3> mirrors_;
  std::vector<std::vector<kernels::AdamWSegment>> segments_;  ///< per unit; the step adds rates
};

}  // namespace tessera::zero::detail
