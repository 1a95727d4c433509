#pragma once
/// Views into a unit's flat buffer.

#include <cstddef>
#include <cstdint>
#include <vector>

#include "tessera/comm/base/collectives.hpp"
#include "tessera/memory/tensor.hpp"
#include "tessera/zero/layout/partition_plan.hpp"

namespace tessera::zero::detail {

/// A run of elements of a unit's flat buffer.
struct Run {
  UnitOffset begin;
  std::int64_t numel = 0;
};
/// The runs that belong to no parameter.
std::vector<Run> padding_runs(UnitLayout const& unit);

/// Cuts the shards of a unit so that one operation moves at most @p largest elements of all ranks
/// together (but not less than a cache line per rank).
std::vector<comm::StridedShards> cut_blocks(UnitLayout const& unit, int ranks,
                                            std::int64_t largest);

/// Address of an element of an array.
inline void* offset(void* base, Dtype dtype, std::int64_t elements) {
  return static_cast<std::byte*>(base) + static_cast<std::size_t>(elements) * size_of(dtype);
}

/// Elements [begin, begin + numel) of a flat view.
inline memory::TensorView part(memory::TensorView flat, std::int64_t begin, std::int64_t numel) {
  return flat.rows(begin, numel);
}

}  // namespace tessera::zero::detail
