#pragma once
/// What layer norm and RMS norm share.

#include <algorithm>

#include "elementwise/dropout.hpp"
#include "launch/convert.hpp"
#include "launch/launch.hpp"
#include "norm/layer_norm_device.hpp"
#include "tessera/core/rounding.hpp"

namespace tessera::kernels::detail {

/// sum = residual + dropout(branch), then the norm of `sum` as rounded to T, which the backward
/// pass reads.
template <class T, class Norm>
struct ResidualNormalize {
  T* sum;
  T const *residual, *branch;
  DropoutFactors factors;
  Norm normalize;  ///< norm of `sum`

  template <class Team>
  KOKKOS_FUNCTION void operator()(Team const& team, std::int64_t row) const {
    std::int64_t const at = row * normalize.columns;
    T* const y = sum + at;
    T const *const a = residual + at, *const b = branch + at;
    for_chunks(team, normalize.columns, [&](std::int64_t c, int n) {
      float factor[Team::chunk];
      if (factors.active()) {
        factors.fill(static_cast<std::uint64_t>(at + c), n, factor);
      } else {
        for (int i = 0; i < n; ++i) factor[i] = 1.0f;
      }
#pragma omp simd
      for (int i = 0; i < n; ++i) store(y[c + i], load(a[c + i]) + load(b[c + i]) * factor[i]);
    });
    normalize(team, row);
  }
};

/// Rows per chunk in the backward pass. Each chunk writes its partial sums of the parameters'
/// gradients to the workspace.
inline std::int64_t norm_rows_per_chunk(std::int64_t rows) {
  constexpr std::int64_t max_chunks = 128, min_rows = 16;
  return std::max(min_rows, ceil_divide(rows, max_chunks));
}
inline std::int64_t norm_chunks(std::int64_t rows, std::int64_t chunk) {
  return ceil_divide(rows, chunk);
}

/// Launches make(threads), the rule of a team that keeps rows in registers. @return false, and no
/// launch, on queues other than a GPU's and for rows that registers do not hold.
template <class T, class Make, class... Data>
bool run_in_registers(Queue& q, char const* name, std::int64_t columns, Make const& make,
                      Data const*... data) {
  if (!memory::on_gpu(q) || !fits_registers<T>(columns, data...)) return false;
  if constexpr (kokkos_has_device)
    with_norm_team<T>(columns, [&](auto threads) {
      auto const rule = make(threads);
      parallel_teams<decltype(threads)::value>(q, name, rule.teams(), rule);
    });
  return true;
}

}  // namespace tessera::kernels::detail
