#pragma once
/// Launches the last step of column sums that a device forms in chunks of rows.

#include "detail/column_sums_device.hpp"
#include "detail/launch.hpp"

namespace tessera::kernels::detail {

/// to (+)= the sums over the columns of the parts. 4 bytes read per element.
template <class Out>
void add_column_parts(Queue& q, char const* name, ColumnTarget<Out> const& to,
                      ColumnPartials const& parts) {
  with_team_size<column_parts_threads>(q, [&](auto threads) {
    constexpr int team = decltype(threads)::value;
    auto const rule = sum_of_column_parts<Out, team>(to, parts);
    parallel_teams<team>(q, name, rule.teams(), rule);
  });
}

}  // namespace tessera::kernels::detail
