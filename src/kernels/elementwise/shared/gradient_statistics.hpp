#pragma once
/// Sum of the squares of all gradients, and whether all of them are finite.

#include <cstdint>
#include <vector>

#include "tessera/kernels/elementwise/elementwise.hpp"

namespace tessera::kernels {

struct GradientRun {
  void const* data = nullptr;
  std::int64_t numel = 0;
};
/// sums[0] = sum of the squares of all elements of all runs; sums[1] = 1 when one is not finite,
/// else 0. Both in double, in memory of the queue's space: the host reads nothing. Partial sums
/// over fixed tiles are added in order, so that the same numbers of elements give the same bits; a
/// device gives other bits than the host. All calls of a process on streams share one workspace: if
/// the streams differ, events must order the calls.
void gradient_statistics(Queue& q, double* sums, std::vector<GradientRun> const& runs, Dtype dtype);

/// Computes gradient statistics in steps, for runs that are not in memory at the same time: first
/// the partial sums of each run, then their total in the order of the runs.
std::int64_t partial_sum_count(std::int64_t numel);
void partial_gradient_statistics(Queue& q, double* partial, GradientRun const& run, Dtype dtype);
void total_gradient_statistics(Queue& q, double* sums, double const* partial, std::int64_t count);

// The sum of squares of gradients without rounding between tiles: the same bits however the
// elements are distributed over ranks.

/// Elements of a tile, whose squares are added in double in a fixed order. Ranks must divide arrays
/// at multiples of it.
inline constexpr std::int64_t exact_tile = 32;

/// digits [ExactSum::digits] int64 = the sum over the tiles of all runs, each of which begins at a
/// multiple of exact_tile in the array that the ranks share, after carry(). Host queues only.
/// Bytes moved: those of the runs. Memory: 552 bytes per 262,144 elements.
void exact_squares(Queue& q, std::int64_t* digits, std::vector<GradientRun> const& runs,
                   Dtype dtype);

/// What an update does with the gradients. A device reads it in one access.
struct alignas(16) GradientControl {
  double gradient_factor = 1.0;  ///< unscales and clips
  std::int32_t skip = 0;         ///< not 0: weights and states stay as they are
};

struct StepDecision {
  double norm = 0.0;  ///< norm of the unscaled gradients; infinite when an element is not finite
  std::int32_t finite = 1;
  GradientControl control;
};

/// What the norm is compared with.
struct GradientLimits {
  double loss_scale = 1.0;
  double max_grad_norm = 0.0;  ///< 0: no clipping
  bool skip_on_nonfinite = true;
  int gradients = 1;  ///< whose squares sums[0] adds: the norm is their root mean square
};

/// With sums as gradient_statistics() leaves them, added over the ranks:
///   norm = sqrt(sums[0] / gradients) / loss_scale;  control.gradient_factor = min(1, max_grad_norm
///   / (norm + 1e-6)) / loss_scale;  control.skip when sums[1] > 0 and the limits say so
/// in double. Source: torch.nn.utils.clip_grad_norm_. Both arguments are in memory of the
/// queue's space.
void compute_norm_and_overflow(Queue& q, StepDecision* out, double const* sums,
                               GradientLimits const& rule);

}  // namespace tessera::kernels
