#include "format/detail/hyperslab.hpp"

#include <algorithm>

namespace tessera::checkpoint::detail {
namespace {

struct Range {
  std::int64_t first = 0, last = 0;
};

/// The part of the tensor below index `prefix[0..depth)`, whose first element is number `base`.
void cut(std::vector<std::int64_t> const& shape, std::size_t depth, Hyperslab prefix,
         std::int64_t base, Range range, std::vector<Hyperslab>& out) {
  std::int64_t row = 1;
  for (std::size_t d = depth + 1; d < shape.size(); ++d) row *= shape[d];
  while (range.first < range.last) {
    std::int64_t const index = range.first / row, rest = range.first % row,
                       rows = (range.last - range.first) / row;
    prefix.start[depth] = static_cast<std::uint64_t>(index);
    prefix.count[depth] = 1;
    if (rest == 0 && rows > 0) {
      Hyperslab slab = prefix;
      slab.first = base + range.first;
      slab.numel = rows * row;
      slab.count[depth] = static_cast<std::uint64_t>(rows);
      for (std::size_t d = depth + 1; d < shape.size(); ++d)
        slab.count[d] = static_cast<std::uint64_t>(shape[d]);
      out.push_back(slab);
      range.first += rows * row;
      continue;
    }
    std::int64_t const end = std::min(range.last, (index + 1) * row);
    cut(shape, depth + 1, prefix, base + index * row, {rest, end - index * row}, out);
    range.first = end;
  }
}

}  // namespace

std::vector<Hyperslab> hyperslabs_of(std::vector<std::int64_t> const& shape, std::int64_t first,
                                     std::int64_t numel) {
  std::vector<Hyperslab> slabs;
  cut(shape, 0, {}, 0, {first, first + numel}, slabs);
  return slabs;
}

}  // namespace tessera::checkpoint::detail
