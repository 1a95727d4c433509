#pragma once
/// Adafactor's means over rows and columns, and the factors that they give.

#include "optimizer/adafactor_rule.hpp"

namespace tessera::kernels::detail {

/// The parameters of a launch of AdafactorMeans.
struct AdafactorMeansBatch {
  static constexpr int max_parameters = 64;
  GradientControl const* control;
  double beta2;
  int count;
  AdafactorParameter parameter[max_parameters];
};

/// New means; the factors 1 / sqrt(r_i / mean(r)) and 1 / sqrt(c_j) replace the sums
/// (AdafactorFactors).
struct AdafactorMeans {
  AdafactorMeansBatch batch;

  template <class Team>
  KOKKOS_FUNCTION void operator()(Team const& team, std::int64_t index) const {
    if (batch.control && batch.control->skip != 0) return;
    AdafactorParameter const& p = batch.parameter[index];
    double* const rows = p.sums + 2;
    double* const columns = rows + p.rows;
    bool const is_column = p.columns == 1;
    double const sum =
        team.sum(advance(team, p.row_means, rows, p.rows, static_cast<double>(p.columns)));
    float const mean = static_cast<float>(sum / static_cast<double>(p.rows));
    for_chunks(team, p.rows, [&](std::int64_t first, int n) {
      for (std::int64_t i = first; i < first + n; ++i)
        AdafactorFactors::set(rows, i,
                              1.0f / std::sqrt(is_column ? p.row_means[i] : p.row_means[i] / mean));
    });
    if (is_column) return;
    // summed over the team although nobody needs the sum: factors overwrite what others read
    (void)team.sum(advance(team, p.column_means, columns, p.columns, static_cast<double>(p.rows)));
    for_chunks(team, p.columns, [&](std::int64_t first, int n) {
      for (std::int64_t i = first; i < first + n; ++i)
        AdafactorFactors::set(columns, i, 1.0f / std::sqrt(p.column_means[i]));
    });
  }

 private:
  /// @return this thread's share of the sum of the new means
  template <class Team>
  KOKKOS_FUNCTION double advance(Team const& team, float* means, double const* sums,
                                 std::int64_t count, double divisor) const {
    float const beta2 = static_cast<float>(batch.beta2),
                one_minus_beta2 = static_cast<float>(1.0 - batch.beta2);
    double total = 0.0;
    for_chunks(team, count, [&](std::int64_t first, int n) {
      for (std::int64_t i = first; i < first + n; ++i) {
        means[i] =
            multiply_add(one_minus_beta2, static_cast<float>(sums[i] / divisor), means[i] * beta2);
        total += means[i];
      }
    });
    return total;
  }
};

}  // namespace tessera::kernels::detail
