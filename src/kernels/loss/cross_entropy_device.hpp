#pragma once
/// The device's traversal of softmax cross-entropy: one row per team of threads. The host's is
/// cross_entropy.cpp.

#include <cmath>
#include <cstdint>
#include <limits>
#include <type_traits>

#include "launch/fast_math.hpp"
#include "launch/pack.hpp"
#include "launch/team_sums.hpp"

namespace tessera::kernels::detail {

/// Threads per team. Two teams share a multiprocessor, each thread with 64 registers, one where a
/// soft cap needs more: 264 rows on the 132 multiprocessors of an H200, which are 27 MB of bf16
/// logits of 50257 tokens and stay in its L2 cache from the first pass to the second.
inline constexpr int cross_entropy_threads = 512;

/// The logit of an element, and the slope of the logit by the element.
struct PlainLogit {
  TESSERA_FUNCTION float operator()(float x) const { return x; }
  TESSERA_FUNCTION float slope_at(float) const { return 1.0f; }
};
struct CappedLogit {
  SoftCap cap;
  TESSERA_FUNCTION float operator()(float x) const { return cap.value(x); }
  TESSERA_FUNCTION float slope_at(float logit) const { return cap.slope_at(logit); }
};

/// Target distribution with label smoothing: every column has `uniform`, and the target
/// `confidence` more.
struct Smoothing {
  float confidence = 1.0f;
  float uniform = 0.0f;
};

/// Makes one pass for maximum and sum of exponentials and one for the gradient, as on the host. A
/// thread processes 16 elements at a time, 8 in the second pass, whose reads come from the cache:
/// as packs when rows are `aligned` (address and stride in 16 bytes; the columns need not be), else
/// one by one, neighboring threads at neighboring elements. Elements between the columns and the
/// stride of an aligned row are not used; in dlogits they become 0 as far as packs reach. Order of
/// the sum: a thread's elements in steps of 16, then the threads as in sum_over_team().
template <class Out, class In, class Score, bool aligned, int Threads>
struct TeamCrossEntropy {
  static constexpr int width = 8, packs = 2;
  static constexpr std::int64_t step = std::int64_t{width} * Threads;
  static constexpr std::size_t scratch_floats = 2 * team_sum_floats<1, Threads>;
  static constexpr int resident_threads = std::is_same_v<Score, PlainLogit> ? 1024 : 512;

  float* losses;
  Out* dlogits;  ///< may be null, or logits
  In const* logits;
  std::int32_t const* targets;
  std::int64_t columns, stride;
  float gradient_scale;
  Smoothing smoothing;
  Score score;
  bool dynamic = false;

  template <class Team>
  TESSERA_FUNCTION void operator()(Team const& team, std::int64_t row) const {
    std::int64_t const target = targets[row];
    Out* const gradient = dlogits == nullptr ? nullptr : dlogits + row * stride;
    if (target < 0) return ignore(team, row, gradient);
    In const* const x = logits + row * stride;
    float const x_target = score(load(x[target]));  // before any thread writes dlogits
    float running_max = -std::numeric_limits<float>::infinity(), sum = 0.0f;
    for (std::int64_t base = 0; base < columns; base += packs * step) {
      float v[packs][width];
      TESSERA_UNROLL
      for (int p = 0; p < packs; ++p) read(v[p], x, base + p * step, team.rank());
      TESSERA_UNROLL
      for (int p = 0; p < packs; ++p) add(v[p], running_max, sum);
    }
    float const row_max = max_over_team<Threads>(team, team.scratch(), running_max);
    float total[1] = {sum > 0.0f ? sum * fast_exp(running_max - row_max)
                                 : sum};  // a thread without elements has no maximum
    sum_over_team<Threads>(team, team.scratch() + team_sum_floats<1, Threads>, total);
    float all_logits[1] = {0.0f};
    if (smoothing.uniform > 0.0f) sum_logits(team, x, all_logits);
    float const log_sum = row_max + std::log(total[0]);
    float const weight = dynamic ? std::exp(x_target - log_sum) : 1.0f;
    if (team.rank() == 0)
      losses[row] =
          weight * (log_sum - smoothing.confidence * x_target - smoothing.uniform * all_logits[0]);
    if (gradient == nullptr) return;
    float const inverse = 1.0f / total[0], factor = gradient_scale * weight;
    for (std::int64_t base = 0; base < columns; base += step) {
      float v[width];
      read(v, x, base, team.rank());
      TESSERA_UNROLL
      for (int k = 0; k < width; ++k) {
        float const probability = fast_exp(v[k] - row_max) * inverse;
        v[k] = (probability - smoothing.uniform -
                (column_of(base, team.rank(), k) == target ? smoothing.confidence : 0.0f)) *
               (factor * score.slope_at(v[k]));
      }
      write(gradient, v, base, team.rank());
    }
  }

 private:
  TESSERA_FUNCTION static std::int64_t column_of(std::int64_t base, int rank, int k) {
    return aligned ? base + std::int64_t{rank} * width + k
                   : base + std::int64_t{k} * Threads + rank;
  }
  /// The logits; -inf where there are no columns.
  TESSERA_FUNCTION void read(float (&v)[width], In const* x, std::int64_t base, int rank) const {
    if constexpr (aligned) {
      if (column_of(base, rank, 0) < columns) {
        read_floats(v, x + column_of(base, rank, 0));
        TESSERA_UNROLL
        for (int k = 0; k < width; ++k) v[k] = score(v[k]);
      }
      if (column_of(base, rank, width - 1) < columns) return;
      TESSERA_UNROLL
      for (int k = 0; k < width; ++k)
        v[k] = column_of(base, rank, k) < columns ? v[k] : -std::numeric_limits<float>::infinity();
    } else {
      TESSERA_UNROLL
      for (int k = 0; k < width; ++k)
        v[k] = column_of(base, rank, k) < columns ? score(load(x[column_of(base, rank, k)]))
                                                  : -std::numeric_limits<float>::infinity();
    }
  }
  TESSERA_FUNCTION void write(Out* gradient, float const (&v)[width], std::int64_t base,
                              int rank) const {
    if constexpr (aligned) {
      if (column_of(base, rank, 0) < columns) write_floats(gradient + column_of(base, rank, 0), v);
    } else {
      TESSERA_UNROLL
      for (int k = 0; k < width; ++k)
        if (column_of(base, rank, k) < columns) store(gradient[column_of(base, rank, k)], v[k]);
    }
  }
  /// The scratch of the maximum is free: every thread has passed the barrier of the sum.
  template <class Team>
  TESSERA_FUNCTION void sum_logits(Team const& team, In const* x, float (&sum)[1]) const {
    for (std::int64_t base = 0; base < columns; base += step) {
      float v[width];
      read(v, x, base, team.rank());
      TESSERA_UNROLL
      for (int k = 0; k < width; ++k)
        sum[0] += column_of(base, team.rank(), k) < columns ? v[k] : 0.0f;
    }
    sum_over_team<Threads>(team, team.scratch(), sum);
  }
  TESSERA_FUNCTION static void add(float const (&v)[width], float& running_max, float& sum) {
    float new_max = running_max, part = 0.0f;
    bool has_columns = false;  // NaN is one, though it is no maximum
    TESSERA_UNROLL
    for (int k = 0; k < width; ++k) {
      new_max = v[k] > new_max ? v[k] : new_max;
      has_columns = has_columns || v[k] != -std::numeric_limits<float>::infinity();
    }
    if (!has_columns) return;
    TESSERA_UNROLL
    for (int k = 0; k < width; ++k) part += fast_exp(v[k] - new_max);
    sum = sum * fast_exp(running_max - new_max) + part;
    running_max = new_max;
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
