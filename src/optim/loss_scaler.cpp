#include "tessera/optim/loss_scaler.hpp"

#include <algorithm>
#include <cmath>

#include "tessera/core/error.hpp"

namespace tessera::optim {
namespace {

bool is_positive(double x) { return std::isfinite(x) && x > 0.0; }

void check(LossScalerConfig const& c) {
  if (!c.dynamic) {
    TESSERA_VALIDATE(
        is_positive(c.static_scale), ConfigError, "loss_scale is ", c.static_scale,
        "; a static scale is a positive number (0 in the fp16 section asks for dynamic scaling)");
    return;
  }
  TESSERA_VALIDATE(
      c.initial_scale_power >= 0 && c.initial_scale_power <= 126, ConfigError,
      "initial_scale_power is ", c.initial_scale_power,
      "; the first scale is 2 to this power and must be a number fp32 holds: 0 to 126");
  TESSERA_VALIDATE(c.window >= 1, ConfigError, "loss_scale_window is ", c.window,
                   "; it counts steps and must be positive");
  TESSERA_VALIDATE(c.hysteresis >= 1, ConfigError, "hysteresis is ", c.hysteresis,
                   "; it counts overflows and must be positive");
  TESSERA_VALIDATE(is_positive(c.min_scale), ConfigError, "min_loss_scale is ", c.min_scale,
                   "; it must be positive");
}

}  // namespace

LossScaler::LossScaler(LossScalerConfig const& config) : config_(config) {
  check(config_);
  state_.scale =
      config_.dynamic ? std::ldexp(1.0, config_.initial_scale_power) : config_.static_scale;
  state_.hysteresis = config_.hysteresis;
}

void LossScaler::update(bool overflow) {
  auto& s = state_;
  if (config_.dynamic && overflow) {
    if (config_.hysteresis == 1 || s.hysteresis <= 1) {
      TESSERA_VALIDATE(s.scale != config_.min_scale, ConfigError,
                       "gradients overflow at optimizer step ", s.iteration + 1,
                       " although the loss scale is already at its minimum of ", config_.min_scale,
                       ": training has diverged");
      s.scale = std::max(s.scale / 2.0, config_.min_scale);
    } else {
      --s.hysteresis;
    }
  } else if (config_.dynamic) {
    std::int64_t const clean =
        s.iteration - s.last_overflow - (config_.growth == ScaleGrowth::deepspeed ? 1 : 0);
    bool const grows = clean > 0 && clean % config_.window == 0;
    if (config_.consecutive_hysteresis || grows) s.hysteresis = config_.hysteresis;
    if (grows) s.scale *= 2.0;
  }
  if (overflow) s.last_overflow = s.iteration;
  ++s.iteration;
}

void LossScaler::restore(LossScalerState const& state) {
  TESSERA_VALIDATE(
      is_positive(state.scale) && state.iteration >= 0 && state.last_overflow >= -1 &&
          state.last_overflow < std::max<std::int64_t>(state.iteration, 1) && state.hysteresis >= 1,
      DataError, "the checkpoint's loss scaler has scale ", state.scale, ", iteration ",
      state.iteration, ", last overflow ", state.last_overflow, ", hysteresis ", state.hysteresis,
      ", which no training reaches; the checkpoint is damaged");
  state_ = state;
  if (!config_.dynamic) state_.scale = config_.static_scale;
}

}  // namespace tessera::optim
