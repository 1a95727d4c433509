#pragma once
/// The update of an optimizer that exchanges signs instead of gradients, with its errors.

#include <optional>

#include "optimizer/optimizer_state.hpp"
#include "optimizer/sign_all_reduce.hpp"

namespace tessera::zero::detail {

/// That of other optimizers, too.
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

  /// Of all units; the host knows that the step is not skipped. Collective if it exchanges.
  void run(optim::Compression const& optimizer, optim::StepCommunication const& communication,
           optim::StepControl const& control);
  /// Ends an interval in which each rank has its own weights by an exchange without compression, so
  /// that all have the same ones. Collective; no effect between intervals.
  void share_weights(optim::Compression const& optimizer);
  /// The same, and every rank's worker errors become their mean, which is what a checkpoint has: it
  /// keeps the sum over the ranks, also for another number of them. Collective; no effect before
  /// the first exchange after it.
  void settle(optim::Compression const& optimizer);
  std::size_t bytes() const { return exchange_.bytes() + exchanged_.bytes(); }

 private:
  void exchange(optim::Compression const& optimizer, optim::StepControl const& control);
  void complete(optim::Compression const& optimizer, UnitIndex unit,
                optim::StepControl const& control);
  void take_worker_errors(UnitIndex unit);
  void clear_errors();
  void average(std::size_t state);
  optim::Directions exchanged(UnitIndex unit) const;

  StoreContext context_;
  OptimizerState& state_;
  std::size_t exp_avg_, worker_error_, server_error_;
  SignAllReduce exchange_;
  memory::Buffer exchanged_;  ///< of the largest unit
  bool errors_differ_ = false;
  /// The last step that has accumulated since the last exchange, and the sum of learning rates.
  std::optional<optim::StepControl> accumulated_;
  double rate_sum_ = 0.0;
};

}  // namespace tessera::zero::detail
