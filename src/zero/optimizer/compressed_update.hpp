#pragma once
/// The update of an optimizer that exchanges signs instead of gradients, with its errors.

#include <optional>

#include "optimizer/optimizer_state.hpp"
#include "optimizer/sign_all_reduce.hpp"

namespace tessera::zero::detail {

/// Optimizers without compression reduce the gradients of every step.
inline optim::StepCommunication communication_of(optim::Optimizer const& optimizer,
                                                 std::int64_t step) {
  auto const* const compression = optim::compression_of(optimizer);
  return compression ? compression->communication(step) : optim::StepCommunication{};
}

class CompressedUpdate {
 public:
  /// @param state outlives this
  CompressedUpdate(StoreContext const& context, OptimizerState& state,
                   optim::Compression const& optimizer);

  /// Updates all units; the host knows that the step is not skipped. Collective.
  void run(optim::Compression const& optimizer, optim::StepControl const& control);
  /// Every rank's worker errors become their mean, which is what a checkpoint has: it keeps the sum
  /// over the ranks, also for another number of them. Collective; no effect before the first
  /// exchange after it.
  void average_worker_errors();
  std::size_t bytes() const { return exchange_.bytes() + exchanged_.bytes(); }

 private:
  void take_worker_errors(UnitIndex unit);
  optim::Directions exchanged(UnitIndex unit) const;

  StoreContext context_;
  OptimizerState& state_;
  std::size_t worker_error_, server_error_;
  SignAllReduce exchange_;
  memory::Buffer exchanged_;  ///< exchanged values of the largest unit
  bool errors_differ_ = false;
};

}  // namespace tessera::zero::detail
