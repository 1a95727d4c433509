#pragma once
/// Optimizers that are implemented for a part of a run only.

#include <algorithm>
#include <cstdint>
#include <optional>

#include "tessera/optim/optimizer_spec.hpp"

namespace tessera::optim {

/// The last step before @p spec compresses its communication, which is not implemented: that of
/// OneBitAdam, OneBitLamb and ZeroOneAdam. None for other optimizers.
inline std::optional<std::int64_t> last_step(OptimizerSpec const& spec) {
  std::optional<std::int64_t> last;
  for (char const* name : {"freeze_step", "var_freeze_step", "var_update_scaler"}) {
    if (!spec.has(name)) continue;
    auto const step = static_cast<std::int64_t>(spec.value(name));
    last = last ? std::min(*last, step) : step;
  }
  return last;
}

}  // namespace tessera::optim
