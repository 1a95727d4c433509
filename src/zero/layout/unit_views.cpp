#include "layout/unit_views.hpp"

#include <algorithm>

#include "tessera/core/error.hpp"

namespace tessera::zero {
namespace {

memory::TensorView shaped(void* data, Dtype dtype, std::vector<std::int64_t> const& s) {
  switch (s.size()) {
    case 0:
      return {data, dtype, {1}};
    case 1:
      return {data, dtype, {s[0]}};
    case 2:
      return {data, dtype, {s[0], s[1]}};
    case 3:
      return {data, dtype, {s[0], s[1], s[2]}};
    case 4:
      return {data, dtype, {s[0], s[1], s[2], s[3]}};
    default:
      throw InternalError(
          concat("a parameter has ", s.size(), " dimensions; views have at most 4"));
  }
}

}  // namespace

std::vector<memory::TensorView> parameter_views(UnitLayout const& unit, void* base, Dtype dtype) {
  std::vector<memory::TensorView> out;
  out.reserve(unit.parameters.size());
  for (auto const& p : unit.parameters)
    out.push_back(shaped(
        static_cast<std::byte*>(base) + static_cast<std::size_t>(p.offset.value()) * size_of(dtype),
        dtype, p.shape));
  return out;
}

namespace detail {

std::vector<Run> padding_runs(UnitLayout const& unit) {
  std::vector<Run> out;
  UnitOffset end;
  auto const add = [&](UnitOffset next) {
    if (next > end) out.push_back({end, next - end});
  };
  for (auto const& p : unit.parameters) {
    add(p.offset);
    end = p.end();
  }
  add(UnitOffset(unit.padded_numel));
  return out;
}

std::vector<comm::StridedShards> cut_blocks(UnitLayout const& unit, int ranks,
                                            std::int64_t largest) {
  constexpr std::int64_t line = PartitionPlan::default_alignment;
  std::int64_t const a_rank = std::max(line, largest / ranks / line * line);
  std::vector<comm::StridedShards> out;
  for (std::int64_t at = 0; at < unit.shard_numel; at += a_rank)
    out.push_back({std::min(a_rank, unit.shard_numel - at), unit.shard_numel, at});
  return out;
}

}  // namespace detail
}  // namespace tessera::zero
