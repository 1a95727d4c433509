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

/// The same in steps, for runs that are not in memory at the same time: the partial sums of each
/// run, and the total of those of all runs, one after the other.
std::int64_t partial_sum_count(std::int64_t numel);
void partial_gradient_statistics(Queue& q, double* partial, GradientRun const& run, Dtype dtype);
void total_gradient_statistics(Queue& q, double* sums, double const* partial, std::int64_t count);

}  // namespace tessera::kernels
