#pragma once
/// Values whose sums over all ranks travel with the gradient norm of a step.

#include <array>
#include <cstddef>
#include <cstdint>
#include <vector>

namespace tessera::zero {

/// Values whose sums over all ranks a step forms in the all-reduce of its gradient norm, so that
/// they cost no message of their own.
struct StepValues {
  static constexpr std::size_t count = 12;
  /// This rank's addends of one sum; with SumOrder::tree the sum is exact.
  std::vector<double> addends;
  /// Further addends, in device memory, for an engine that computes there: its compute queue reads
  /// them with the gradient norm, so that the host need not wait for them. They stay as they are
  /// until finish_step() returns.
  std::vector<double const*> device_addends = {};
  std::array<std::int64_t, count> counts{};  ///< each summed; the sums are below 2^53
};
/// The sums of the StepValues of all ranks.
struct StepSums {
  double addends = 0.0;
  std::array<std::int64_t, StepValues::count> counts{};
};

}  // namespace tessera::zero
