#pragma once
/// Ends a run whose updates are skipped for a reason that more steps do not cure, and names the
/// likely cause.

#include <cstdint>
#include <optional>
#include <string>

#include "tessera/optim/loss_scaler.hpp"
#include "tessera/train/setup/model_source.hpp"
#include "tessera/train/step/training_state.hpp"
#include "tessera/train/step/training_step.hpp"

namespace tessera::train {

class UpdateWatch {
 public:
  struct Options {
    Dtype dtype = Dtype::fp32;  ///< dtype of the weights
    optim::LossScalerConfig loss_scaler = {};
    /// Consecutive skipped steps after which training still continues; none: see tolerated().
    std::optional<std::int64_t> max_skipped_steps = {};
    WeightsOrigin weights = {};
  };
  /// @param state outlives the watch, which counts its steps
  UpdateWatch(Options options, TrainingState& state);

  /// Counts the outcome of each step.
  void count(StepOutcome const& outcome);
  /// Checks the counts after count(). @throws ConfigError when the loss is not finite and no loss
  /// scale can change that, or when more steps in a row were skipped than are tolerated
  void require_progress(std::int64_t step, StepOutcome const& outcome) const;
  /// Checks the run after the last step. @throws ConfigError when no step of the run has changed
  /// the weights
  void training_done(std::int64_t total_steps) const;

  /// The likely cause and what to try, for messages.
  std::string advice() const;

 private:
  bool scale_can_help() const { return options_.loss_scaler.dynamic; }
  bool tolerated() const;

  Options options_;
  TrainingState& state_;
  std::int64_t losses_in_a_row_ = 0;  ///< that were not finite
};

}  // namespace tessera::train
