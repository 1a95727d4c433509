#pragma once
/// Runs of a tensor's elements as HDF5 hyperslabs.

#include <array>
#include <cstddef>
#include <cstdint>
#include <vector>

namespace tessera::checkpoint::detail {

constexpr std::size_t max_dimensions = 8;  ///< of a tensor in a manifest

/// A run of a tensor's elements in row-major order that is a hyperslab (start, count) of its shape.
struct Hyperslab {
  std::array<std::uint64_t, max_dimensions> start{}, count{};
  std::int64_t first = 0, numel = 0;  ///< in row-major order
};

/// Cuts [first, first + numel) into hyperslabs in row-major order: a partial first row, full rows,
/// a partial last row, and so on inwards (at most 2 * dimensions - 1).
std::vector<Hyperslab> hyperslabs_of(std::vector<std::int64_t> const& shape, std::int64_t first,
                                     std::int64_t numel);

}  // namespace tessera::checkpoint::detail
