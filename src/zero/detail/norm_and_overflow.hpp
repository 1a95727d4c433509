#pragma once
/// The verdict on a step's gradients: the same bits on every rank and in every stage, formed on the
/// compute queue. On a device the host learns it while the update that depends on it is already
/// under way.

#include "detail/comm_buffer.hpp"
#include "detail/weight_store.hpp"
#include "tessera/kernels/step_decision.hpp"
#include "tessera/memory/device.hpp"

namespace tessera::zero::detail {

class NormAndOverflow {
 public:
  /// Collective.
  explicit NormAndOverflow(StoreContext const& context);

  /// Each rank looks at its own shards (@p shards), also where it holds everything. Collective.
  void form(std::vector<kernels::GradientRun> const& shards, Dtype dtype,
            kernels::GradientLimits const& rule);
  /// Where the update's kernels read it.
  kernels::StepControl const* control() const { return &formed()->control; }
  /// On the host read() takes no time: what it forbids need not be begun. Equal on all ranks.
  bool is_known_at_once() const { return !arrived_.data(); }
  /// Blocks the host. @throws PeerLostError when a rank is missing
  kernels::StepDecision read() const;

 private:
  kernels::StepDecision* formed() const {
    return static_cast<kernels::StepDecision*>(formed_.data());
  }

  StoreContext context_;
  CommBuffer sums_;                  ///< [2] fp64, see kernels::gradient_statistics
  memory::Buffer formed_, arrived_;  ///< arrived_: pinned, on a device only
  comm::Pending summed_;
  memory::Event known_;
};

}  // namespace tessera::zero::detail
