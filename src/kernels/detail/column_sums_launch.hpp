#pragma once
/// The last launch of sums that a device forms by blocks of rows.

#include "detail/column_sums_device.hpp"
#include "detail/launch.hpp"

namespace tessera::kernels::detail {

/// to (+)= the sums of the columns of parts [blocks, columns]. 4 bytes read an element.
template <class Out>
void add_column_parts(Queue& q, char const* name, ColumnTarget<Out> const& to, float const* parts,
                      std::int64_t blocks, std::int64_t columns) {
  with_team_size<column_parts_threads>(q, [&](auto threads) {
    constexpr int team = decltype(threads)::value;
    auto const rule = sum_of_column_parts<Out, team>(to, parts, blocks, columns);
    parallel_teams<team>(q, name, rule.teams(), rule);
  });
}

}  // namespace tessera::kernels::detail
