#pragma once
/// Launches the last step of column sums that are formed in chunks of rows.

#include "elementwise/column_sums_device.hpp"
#include "launch/launch.hpp"
#include "tessera/core/rounding.hpp"

namespace tessera::kernels::detail {

/// The host's traversal: adds the partial sums of the chunks in their order.
template <class Out>
struct AddColumnParts {
  static constexpr int width = 64;  ///< columns per call, at most
  ColumnTarget<Out> to;
  ColumnPartials parts;

  KOKKOS_FUNCTION void operator()(std::int64_t, std::int64_t begin, std::int64_t end) const {
    int const n = static_cast<int>(end - begin);
    float sums[width];
    for (int i = 0; i < n; ++i) sums[i] = to.accumulate ? load(to.at(begin + i)) : 0.0f;
    for (std::int64_t b = 0; b < parts.chunks; ++b) {
      float const* const part = parts.data + b * parts.columns + begin;
#pragma omp simd
      for (int i = 0; i < n; ++i) sums[i] += part[i];
    }
    for (int i = 0; i < n; ++i) store(to.at(begin + i), sums[i]);
  }
};

/// to (+)= the sums over the columns of the parts. 4 bytes read per element.
template <class Out>
void add_column_parts(Queue& q, char const* name, ColumnTarget<Out> const& to,
                      ColumnPartials const& parts) {
  auto const columns = static_cast<std::size_t>(parts.columns);
  memory::note_bytes(q, name,
                     columns * (sizeof(Out) * (to.accumulate ? 2 : 1) +
                                sizeof(float) * static_cast<std::size_t>(parts.chunks)));
  if (!on_device(q)) {
    constexpr int width = AddColumnParts<Out>::width;
    return launch_on_host(q, name, ceil_divide(parts.columns, width),
                          CallWithChunk<AddColumnParts<Out>>{{to, parts}, parts.columns, width});
  }
  with_team_size<column_parts_threads>(q, [&](auto threads) {
    constexpr int team = decltype(threads)::value;
    auto const rule = sum_of_column_parts<Out, team>(to, parts);
    parallel_teams<team>(q, name, rule.teams(), rule);
  });
}

}  // namespace tessera::kernels::detail
