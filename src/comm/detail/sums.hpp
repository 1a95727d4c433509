#pragma once
/// The arithmetic of the collectives on one rank: reductions of several arrays in rank order and
/// large copies.

#include <cstddef>
#include <cstdint>
#include <span>

#include "tessera/comm/collectives.hpp"
#include "tessera/core/dtype.hpp"

namespace tessera::comm::detail {

/// Where a reduction's result goes.
struct Target {
  std::byte* data = nullptr;
  Dtype dtype = Dtype::fp32;
  bool accumulate = false;  ///< data[i] += result (sum only) instead of data[i] = result
};

/// target[i] = op over q of sources[q][i], q in order. fp32, fp16 and bf16 are accumulated in fp32,
/// fp64 in fp64, integers in their own type; rounded once. A NaN in any source is the result of max
/// and min. Aliasing: target may start at or before a source when its elements are not larger than
/// the source's; else it is disjoint. Bytes moved per element: size_of(in) * sources +
/// size_of(target) (twice with accumulate).
void reduce_arrays(ReduceOp op, Dtype in, std::span<std::byte const* const> sources,
                   std::int64_t numel, Target const& target);

/// Throws InternalError unless reduce_arrays can do this: floats among each other; fp64, int32,
/// int64 each to itself.
void require_reducible(Dtype in, Dtype out);

/// memcpy; large copies go past the caches.
void copy_bytes(std::byte* to, std::byte const* from, std::size_t bytes);

}  // namespace tessera::comm::detail
