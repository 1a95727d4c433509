#pragma once
/// ZeroOneAdam (0/1 Adam): Adam without bias correction that reduces gradients less and less often,
/// and later exchanges what several local steps have added up.

#include <cstdint>

#include "detail/optimizer_table.hpp"

namespace tessera::optim::detail {

OptimizerEntry zero_one_adam_entry();

/// Whether step @p t updates the mean square from all-reduced gradients: steps at multiples of an
/// interval that doubles after every @p scaler such steps.
bool updates_variance(std::int64_t t, std::int64_t scaler);
/// Steps between exchanges at local step @p k (1, 2, ...): twice as many after every @p scaler
/// local steps, at most @p clipper.
std::int64_t local_interval(std::int64_t k, std::int64_t scaler, std::int64_t clipper);

}  // namespace tessera::optim::detail
