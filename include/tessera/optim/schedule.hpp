#pragma once
/// A learning-rate schedule as a value: step number in, rate out.

#include <cstdint>
#include <functional>

namespace tessera::optim {

/// Learning rate used by optimizer step k = 1, 2, ... (schedules are evaluated at k-1, as torch's
/// LambdaLR under HF's Trainer).
using Schedule = std::function<double(std::int64_t step)>;

}  // namespace tessera::optim
