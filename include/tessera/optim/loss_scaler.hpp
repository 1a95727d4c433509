#pragma once
/// Loss scaling as a state machine. DeepSpeed semantics (docs/explanation/loss-scaling.md);
/// Micikevicius et al., "Mixed Precision Training", ICLR 2018, section 3.2.

#include <cstdint>

namespace tessera::optim {

/// When the scale grows: DeepSpeed counts from the second clean step after an overflow or the
/// start, torch.amp.GradScaler from the first.
enum class ScaleGrowth { deepspeed, torch };

/// The keys of DeepSpeed's block fp16.
struct LossScalerConfig {
  bool dynamic = false;
  double static_scale = 1.0;  ///< scale of a scaler that is not dynamic
  int initial_scale_power = 16;
  std::int64_t window = 1000;
  int hysteresis = 2;
  bool consecutive_hysteresis = false;
  double min_scale = 1.0;
  ScaleGrowth growth = ScaleGrowth::deepspeed;
};

/// Everything a checkpoint must keep.
struct LossScalerState {
  double scale = 1.0;
  std::int64_t iteration = 0;
  std::int64_t last_overflow = -1;
  int hysteresis = 2;
  bool operator==(LossScalerState const&) const = default;
};

/// The loss scale of a run, which follows the overflows of its steps.
class LossScaler {
 public:
  /// @throws ConfigError naming the value that cannot work
  explicit LossScaler(LossScalerConfig const& config);
  /// Multiplies the loss before backward; gradients of a step are divided by the same value, also
  /// when update() then grows it.
  double scale() const { return state_.scale; }
  /// After each optimizer step, with the overflow flag that all ranks have agreed on.
  /// @throws ConfigError (78) when the scale is at its minimum and the gradients still overflow
  void update(bool overflow);
  LossScalerState const& state() const { return state_; }
  /// Continues from a checkpoint; a scaler that is not dynamic keeps the scale of its
  /// configuration.
  /// @throws DataError for a state no scaler can be in
  void restore(LossScalerState const& state);

 private:
  LossScalerConfig config_;
  LossScalerState state_;
};

}  // namespace tessera::optim
