#pragma once
/// The gradient norm and the overflow flag of a step: the same bits on every rank and in every
/// stage, computed on the compute queue. On a device the host reads them after the update that
/// depends on them is enqueued. Values of the caller are summed in the same all-reduce. Without
/// clipping and overflow check the update does not depend on them: then the all-reduce runs while
/// the weights are updated.

#include <vector>

#include "gradients/offloaded_gradients.hpp"
#include "tessera/kernels/elementwise/gradient_statistics.hpp"
#include "tessera/memory/device.hpp"
#include "tessera/zero/optimizer/step_values.hpp"
#include "transfer/comm_buffer.hpp"
#include "transfer/weight_store.hpp"

namespace tessera::zero::detail {

class NormAndOverflow {
 public:
  /// Collective.
  explicit NormAndOverflow(StoreContext const& context);
  ~NormAndOverflow();
  NormAndOverflow(NormAndOverflow const&) = delete;
  NormAndOverflow& operator=(NormAndOverflow const&) = delete;

  /// Sets this rank's values for the next compute(), after read() of the previous one.
  void set_values(StepValues const& values);
  /// Each rank reads its own shards (@p shards), also where it holds all gradients. Collective.
  void compute(std::vector<kernels::GradientRun> const& shards, Dtype dtype,
               kernels::GradientLimits const& limits);
  /// Computes the norm from the squares that were summed before the gradients left the device.
  void compute(HostGradients const& gradients, kernels::GradientLimits const& limits);
  /// Whether the update must know the sums of all ranks, to clip or to skip.
  bool precedes_update() const { return precedes_update_; }
  /// Returns the control in the memory where the update's kernels read it.
  kernels::GradientControl const* control() const { return &decision()->control; }
  /// Returns the control in host memory, after read().
  kernels::GradientControl const* host_control() const { return &host_decision()->control; }
  /// read() does not wait, so that a skipped update need not be enqueued. Equal on all ranks.
  bool is_on_host() const { return !read_back_.data(); }
  /// Blocks the host; after the update is enqueued where the update may precede the sums.
  /// @throws PeerLostError when a rank is missing
  kernels::StepDecision read();
  /// Warns where an update applies gradients that are not finite; after read().
  void warn_of_unchecked_overflow() const;
  /// Returns the step's sums, after read().
  StepSums sums() const;

 private:
  kernels::StepDecision* decision() const {
    return static_cast<kernels::StepDecision*>(decision_.data());
  }
  kernels::StepDecision const* host_decision() const {
    return static_cast<kernels::StepDecision const*>(read_back_.data() ? read_back_.data()
                                                                       : decision_.data());
  }
  void add_over_ranks(kernels::GradientLimits const& limits);
  void complete();
  void decide();
  bool is_exact() const { return context_.config.sum_order == SumOrder::tree; }
  /// Places of the values in the all-reduce, after those of the norm.
  std::int64_t norm_places() const;
  std::int64_t value_places() const;
  /// The sums from the digits of all ranks.
  void round_digits();

  StoreContext context_;
  CommBuffer sums_;    ///< [2] fp64, see kernels::gradient_statistics, and those of the values
  CommBuffer digits_;  ///< int64, of exact sums; empty: the sums are of doubles
  struct OwnValues {
    memory::Buffer places;                        ///< as they are summed
    std::vector<double const*> device_addends{};  ///< which the queue adds to the first place
  };
  OwnValues values_;                     ///< values of this rank
  memory::Buffer decision_, read_back_;  ///< read_back_: pinned, on a device only
  memory::Buffer sums_back_;             ///< copy of the values, on a device only
  comm::Pending sums_complete_;
  memory::Event computed_;
  kernels::GradientLimits limits_;  ///< limits of the step
  bool precedes_update_ = true;     ///< see precedes_update()
  bool is_complete_ = true;         ///< the decision from the sums of all ranks is enqueued
};

}  // namespace tessera::zero::detail
