#pragma once
/// The sum of squares of gradients without rounding between tiles: the same bits however the
/// elements are distributed over ranks.

#include <cstdint>
#include <vector>

#include "tessera/kernels/elementwise/gradient_statistics.hpp"

namespace tessera::kernels {

/// Elements of a tile, whose squares are added in double in a fixed order. Ranks must divide arrays
/// at multiples of it.
inline constexpr std::int64_t exact_tile = 32;

/// digits [ExactSum::digits] int64 = the sum over the tiles of all runs, each of which begins at a
/// multiple of exact_tile in the array that the ranks share, after carry(). Host queues only.
/// Bytes moved: those of the runs. Memory: 552 bytes per 262,144 elements.
void exact_squares(Queue& q, std::int64_t* digits, std::vector<GradientRun> const& runs,
                   Dtype dtype);

}  // namespace tessera::kernels
