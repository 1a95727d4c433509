#pragma once
/// Host arithmetic of the collectives: reductions of several arrays as a binary tree over ranks,
/// and large copies.

#include <cstddef>
#include <cstdint>
#include <span>
#include <vector>

#include "tessera/comm/base/collectives.hpp"
#include "tessera/core/dtype.hpp"

namespace tessera::comm::detail {

/// Output of a reduction.
struct Target {
  std::byte* data = nullptr;
  Dtype dtype = Dtype::fp32;
  memory::WriteMode mode = memory::WriteMode::overwrite;  ///< accumulate: sums only
};

/// target[i] (+)= op over q of sources[q][i], in the order of a binary tree over the positions q:
/// the sum of [a, a + 2^k), a a multiple of 2^k, is that of its first half plus that of its second
/// half; missing positions are left out. So sums of aligned groups of 2^k positions add up to the
/// same bits. fp32, fp16 and bf16 are accumulated in fp32, fp64 in fp64, integers in their own
/// type; the result is rounded once. max and min propagate NaN. Aliasing: the target may start at
/// or before a source if its elements are not larger than the source's; otherwise they must be
/// disjoint. Bytes moved per element: size_of(in) * sources + size_of(target), the latter twice
/// when accumulating.
void reduce_arrays(ReduceOp op, Dtype in, std::span<std::byte const* const> sources,
                   std::int64_t numel, Target const& target);

/// Reduces as reduce_arrays() within each node, rounds to the dtype @p in, and then reduces over
/// the nodes: the order of two-level reductions. With one node it is reduce_arrays(). @param nodes
/// positions of each node's sources
void reduce_by_node(ReduceOp op, Dtype in, std::span<std::byte const* const> sources,
                    std::span<std::vector<std::size_t> const> nodes, std::int64_t numel,
                    Target const& target);

/// @throws InternalError unless reduce_arrays supports the pair: fp32, fp16 and bf16 in any
/// combination; fp64, int32 and int64 only with themselves
void require_reducible(Dtype in, Dtype out);

/// memcpy; large copies use non-temporal stores.
void copy_bytes(std::byte* to, std::byte const* from, std::size_t bytes);

}  // namespace tessera::comm::detail
