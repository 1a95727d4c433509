#pragma once
/// Softmax cross-entropy of one row for a team of threads.

#include <cmath>
#include <cstdint>
#include <limits>

#include "detail/fast_math.hpp"
#include "detail/row_packs.hpp"
#include "detail/team_sums.hpp"

namespace tessera::kernels::detail {

/// Threads of a team: with 1024 one row is under way on each multiprocessor, 26 MB of fp32 logits
/// of 50257 columns on an H200's 132, so that the second pass finds them in its second-level cache.
inline constexpr int cross_entropy_threads = 1024;

/// As on the host one pass for maximum and sum of exponentials, one for the gradient. A thread
/// takes 16 elements at a time: as packs when rows are `aligned` (address and stride in 16 bytes;
/// the columns need not be), else one by one, neighboring threads beside each other. What lies
/// between the columns and the stride of an aligned row is not used; in dlogits it becomes 0 as far
/// as packs reach. Order of the sum: a thread's elements in steps of 16, then the threads as in
/// sum_over_team().
template <class Out, class In, bool aligned, int Threads>
struct TeamCrossEntropy {
  static constexpr int width = 8, packs = 2;
  static constexpr std::int64_t step = std::int64_t{width} * Threads;
  static constexpr std::size_t scratch_floats = 2 * team_sum_floats<1, Threads>;

  float* losses;
  Out* dlogits;  ///< may be null, or logits
  In const* logits;
  std::int32_t const* targets;
  std::int64_t columns, stride;
  float gradient_scale;

  template <class Team>
  TESSERA_FUNCTION void operator()(Team const& team, std::int64_t row) const {
    std::int64_t const target = targets[row];
    Out* const gradient = dlogits == nullptr ? nullptr : dlogits + row * stride;
    if (target < 0) return ignore(team, row, gradient);
    In const* const x = logits + row * stride;
    float const x_target = load(x[target]);  // before any thread writes dlogits
    float largest = -std::numeric_limits<float>::infinity(), sum = 0.0f;
    for (std::int64_t base = 0; base < columns; base += packs * step) {
      float v[packs][width];
      TESSERA_UNROLL
      for (int p = 0; p < packs; ++p) read(v[p], x, base + p * step, team.rank());
      TESSERA_UNROLL
      for (int p = 0; p < packs; ++p) add(v[p], largest, sum);
    }
    float const most = max_over_team<Threads>(team, team.scratch(), largest);
    float total[1] = {sum > 0.0f ? sum * fast_exp(largest - most)
                                 : sum};  // a thread without elements has no maximum
    sum_over_team<Threads>(team, team.scratch() + team_sum_floats<1, Threads>, total);
    if (team.rank() == 0) losses[row] = most + std::log(total[0]) - x_target;
    if (gradient == nullptr) return;
    float const inverse = 1.0f / total[0];
    for (std::int64_t base = 0; base < columns; base += packs * step) {
      float v[packs][width];
      TESSERA_UNROLL
      for (int p = 0; p < packs; ++p) read(v[p], x, base + p * step, team.rank());
      TESSERA_UNROLL
      for (int p = 0; p < packs; ++p) {
        TESSERA_UNROLL
        for (int k = 0; k < width; ++k) {
          float const probability = fast_exp(v[p][k] - most) * inverse;
          v[p][k] =
              (probability - (place(base + p * step, team.rank(), k) == target ? 1.0f : 0.0f)) *
              gradient_scale;
        }
        write(gradient, v[p], base + p * step, team.rank());
      }
    }
  }

 private:
  TESSERA_FUNCTION static std::int64_t place(std::int64_t base, int rank, int k) {
    return aligned ? base + std::int64_t{rank} * width + k
                   : base + std::int64_t{k} * Threads + rank;
  }
  /// -inf where there are no columns.
  TESSERA_FUNCTION void read(float (&v)[width], In const* x, std::int64_t base, int rank) const {
    if constexpr (aligned) {
      if (place(base, rank, 0) < columns) read_floats(v, x + place(base, rank, 0));
      if (place(base, rank, width - 1) < columns) return;
      TESSERA_UNROLL
      for (int k = 0; k < width; ++k)
        v[k] = place(base, rank, k) < columns ? v[k] : -std::numeric_limits<float>::infinity();
    } else {
      TESSERA_UNROLL
      for (int k = 0; k < width; ++k)
        v[k] = place(base, rank, k) < columns ? load(x[place(base, rank, k)])
                                              : -std::numeric_limits<float>::infinity();
    }
  }
  TESSERA_FUNCTION void write(Out* gradient, float const (&v)[width], std::int64_t base,
                              int rank) const {
    if constexpr (aligned) {
      if (place(base, rank, 0) < columns) write_floats(gradient + place(base, rank, 0), v);
    } else {
      TESSERA_UNROLL
      for (int k = 0; k < width; ++k)
        if (place(base, rank, k) < columns) store(gradient[place(base, rank, k)], v[k]);
    }
  }
  TESSERA_FUNCTION static void add(float const (&v)[width], float& largest, float& sum) {
    float most = largest, part = 0.0f;
    TESSERA_UNROLL
    for (int k = 0; k < width; ++k) most = v[k] > most ? v[k] : most;
    if (most == -std::numeric_limits<float>::infinity()) return;  // no columns
    TESSERA_UNROLL
    for (int k = 0; k < width; ++k) part += fast_exp(v[k] - most);
    sum = sum * fast_exp(largest - most) + part;
    largest = most;
  }
  template <class Team>
  TESSERA_FUNCTION void ignore(Team const& team, std::int64_t row, Out* gradient) const {
    if (team.rank() == 0) losses[row] = 0.0f;
    if (gradient == nullptr) return;
    float const zeros[width] = {};
    for (std::int64_t base = 0; base < columns; base += step)
      write(gradient, zeros, base, team.rank());
  }
};

}  // namespace tessera::kernels::detail
