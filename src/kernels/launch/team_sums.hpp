#pragma once
/// Reductions over the threads of a team, in an order that depends only on the size of the team: a
/// butterfly within each warp, then the warps in order. A team is any type with rank(), barrier()
/// and exchange(). Every thread gets the result.

#include "launch/pack.hpp"
#include "tessera/core/rounding.hpp"

namespace tessera::kernels::detail {

/// Floats of scratch for the reduction of N values.
template <int N, int Threads>
inline constexpr int team_sum_floats = ceil_divide(Threads, warp_size) * N;

/// @p scratch: team_sum_floats<N, Threads>; no other use until the team's next barrier.
template <int Threads, int N, class Team, class Combine>
TESSERA_FUNCTION void combine_over_team(Team const& team, float* scratch, float (&value)[N],
                                        Combine const& combine) {
  static_assert(Threads == 1 || Threads % warp_size == 0);
  if constexpr (Threads > 1) {
    TESSERA_UNROLL
    for (int mask = warp_size / 2; mask > 0; mask /= 2) {
      float other[N];
      team.exchange(value, mask, other);
      TESSERA_UNROLL
      for (int i = 0; i < N; ++i) value[i] = combine(value[i], other[i]);
    }
    if (team.rank() % warp_size == 0) TESSERA_UNROLL
    for (int i = 0; i < N; ++i) scratch[team.rank() / warp_size * N + i] = value[i];
    team.barrier();
    TESSERA_UNROLL
    for (int i = 0; i < N; ++i) value[i] = scratch[i];
    for (int warp = 1; warp < Threads / warp_size; ++warp) TESSERA_UNROLL
    for (int i = 0; i < N; ++i) value[i] = combine(value[i], scratch[warp * N + i]);
  }
}

struct Plus {
  TESSERA_FUNCTION float operator()(float a, float b) const { return a + b; }
};
struct Larger {
  TESSERA_FUNCTION float operator()(float a, float b) const { return a > b ? a : b; }
};

template <int Threads, int N, class Team>
TESSERA_FUNCTION void sum_over_team(Team const& team, float* scratch, float (&value)[N]) {
  combine_over_team<Threads>(team, scratch, value, Plus());
}
template <int Threads, class Team>
TESSERA_FUNCTION float max_over_team(Team const& team, float* scratch, float value) {
  float one[1] = {value};
  combine_over_team<Threads>(team, scratch, one, Larger());
  return one[0];
}

}  // namespace tessera::kernels::detail
