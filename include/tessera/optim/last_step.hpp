#pragma once
/// Optimizers that are implemented for a part of a run only.

#include <cstdint>
#include <optional>
#include <string>

#include "tessera/optim/optimizer_spec.hpp"

namespace tessera::optim {

struct LastStep {
  std::int64_t step = 0;
  std::string parameter;  ///< the hyperparameter that sets it
};

/// The last step before @p spec compresses its communication, which is not implemented: that of
/// OneBitLamb and ZeroOneAdam. None for other optimizers.
inline std::optional<LastStep> last_step(OptimizerSpec const& spec) {
  std::optional<LastStep> last;
  if (spec.algorithm == "OneBitAdam") return last;
  for (char const* name : {"freeze_step", "var_freeze_step", "var_update_scaler"}) {
    if (!spec.has(name)) continue;
    auto const step = static_cast<std::int64_t>(spec.value(name));
    if (!last || step < last->step) last = LastStep{step, name};
  }
  return last;
}

}  // namespace tessera::optim
