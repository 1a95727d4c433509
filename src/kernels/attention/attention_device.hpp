#pragma once
/// The device's traversal of attention: tiles with an online softmax for teams of threads that
/// share scratch memory (a thread block). The host's traversal is attention.cpp. Dao et al.,
/// "FlashAttention", NeurIPS 2022, algorithms 1 and 4; "FlashAttention-2", arXiv 2307.08691,
/// sections 3.1 and 3.2.
///
/// One thread sums each element of each result, in an order that depends on the shape only: results
/// repeat bit for bit, without atomics.

#include <cmath>

#include "attention/attention_device_tiles.hpp"
#include "tessera/core/rounding.hpp"

namespace tessera::kernels::detail {

/// Tile sizes that fit 48 KiB of scratch and give 128 threads equal work.
template <int Width>
struct FlashTiles;
template <>
struct FlashTiles<64> {
  static constexpr int queries = 64, keys = 32, score_rows = 4, score_columns = 4;  // forward
  static constexpr int side = 32, pair_rows = 2, pair_columns = 4;  // backward, square
};
template <>
struct FlashTiles<128> {
  static constexpr int queries = 32, keys = 32, score_rows = 2, score_columns = 4;
  static constexpr int side = 16, pair_rows = 1, pair_columns = 2;
};
template <>
struct FlashTiles<256> {
  static constexpr int queries = 16, keys = 16, score_rows = 1, score_columns = 2;
  static constexpr int side = 8, pair_rows = 1, pair_columns = 1;
};

/// One tile of queries of one head against the keys that the causal mask leaves.
template <int Width, int Threads>
struct FlashForward {
  using Tiles = FlashTiles<Width>;
  static constexpr int Q = Tiles::queries, K = Tiles::keys, TR = Tiles::score_rows,
                       TC = Tiles::score_columns;
  using Scores = MicroTiles<Q, K, TR, TC, Threads>;
  using Sums = MicroTiles<Q, Width, 4, 8, Threads>;
  static constexpr int scratch_floats = (Q + K) * (Width + 4) + Q * (K + 4) + 3 * Q;

  FlashInput in;
  FlashRows out;
  float* lse;
  std::int64_t tiles;

  TESSERA_FUNCTION static std::int64_t tiles_of(std::int64_t sequence) {
    return ceil_divide(sequence, Q);
  }
  std::int64_t teams() const { return in.shape.batch * in.shape.heads * tiles; }

  /// The tile of queries of one team; the arrays are in scratch.
  struct QueryTile {
    std::int64_t head, b, t0;
    int h, thread;
    float *running_max, *running_sum, *correction;  ///< [Q]
  };

  /// Tiles with the most keys run first, so that no long tile starts last.
  template <class Team>
  TESSERA_FUNCTION void operator()(Team const& team, std::int64_t index) const {
    float* const q = team.scratch();
    float *const rows = q + Q * (Width + 4), *const p = rows + K * (Width + 4),
                 *const stats = p + Q * (K + 4);
    std::int64_t const heads = in.shape.batch * in.shape.heads, head = index % heads;
    QueryTile const at{head,
                       head / in.shape.heads,
                       (tiles - 1 - index / heads) * Q,
                       static_cast<int>(head % in.shape.heads),
                       team.rank(),
                       stats,
                       stats + Q,
                       stats + 2 * Q};
    int const kv = at.h / in.group();

    float sum[Sums::each][4][8] = {};
    read_tile<Q, Width, Threads>(team, q, in.query, {at.b, at.t0, at.h}, in.shape.scale);
    for (int r = at.thread; r < Q; r += Threads) at.running_max[r] = at.running_sum[r] = 0.0f;
    std::int64_t const end = at.t0 + Q < in.shape.sequence ? at.t0 + Q : in.shape.sequence;
    for (std::int64_t s0 = in.seen(at.b).first_key_tile(at.t0, K); s0 < end; s0 += K) {
      team.barrier();
      read_tile<K, Width, Threads>(team, rows, in.key, {at.b, s0, kv}, 1.0f);
      team.barrier();
      score(p, q, rows, at.thread);
      team.barrier();
      read_tile<K, Width, Threads>(team, rows, in.value, {at.b, s0, kv}, 1.0f);
      for (int r = at.thread; r < Q; r += Threads) update_softmax(p + r * (K + 4), at, r, s0);
      team.barrier();
      for (int i = 0; i < Sums::each; ++i) {
        if (!Sums::has(at.thread, i)) continue;
        for (int r = 0; r < 4; ++r)
          for (int c = 0; c < 8; ++c) sum[i][r][c] *= at.correction[Sums::row(at.thread, i, r)];
        add_rows_by_columns<Sums, K, Width>(sum[i], at.thread, i, p, rows);
      }
    }
    finish(at, sum);
  }

  /// p [Q, K] = q k^T
  TESSERA_FUNCTION void score(float* p, float const* q, float const* keys, int thread) const {
    for (int i = 0; i < Scores::each; ++i) {
      if (!Scores::has(thread, i)) continue;
      float values[TR][TC];
      multiply_rows_by_rows<Scores, Width>(values, thread, i, q, keys);
      cap_scores(values, in.cap);
      for (int r = 0; r < TR; ++r)
        for (int c = 0; c < TC; ++c)
          p[Scores::row(thread, i, r) * (K + 4) + Scores::column_group(thread, i) +
            c * Scores::column_groups] = values[r][c];
    }
  }

  /// One step of the online softmax: row = dropout(exp(row - running max)), 0 for keys that the
  /// query does not see. `correction` is the factor for sums formed with the previous running max.
  TESSERA_FUNCTION void update_softmax(float* row, QueryTile const& at, int r,
                                       std::int64_t s0) const {
    std::int64_t const t = at.t0 + r, left = t < in.shape.sequence ? t - s0 + 1 : 0;
    int const end = left < 0 ? 0 : left < K ? static_cast<int>(left) : K;
    std::int64_t const hidden = in.seen(at.b).first_key(t) - s0;
    int const begin = hidden < 0 ? 0 : hidden < K ? static_cast<int>(hidden) : K;
    if (begin >= end) {
      for (int c = 0; c < K; ++c) row[c] = 0.0f;
      at.correction[r] = 1.0f;
      return;
    }
    bool const is_first = at.running_sum[r] == 0.0f;  // later sums are at least 1, or NaN
    float new_max = is_first ? row[begin] : at.running_max[r];
    for (int c = begin; c < end; ++c) new_max = row[c] > new_max ? row[c] : new_max;
    float const correction = is_first ? 0.0f : fast_exp(at.running_max[r] - new_max);
    float added = 0.0f;
    for (int c = 0; c < K; ++c) {
      row[c] = begin <= c && c < end ? fast_exp(row[c] - new_max) : 0.0f;
      added += row[c];
    }
    at.running_max[r] = new_max;
    at.running_sum[r] = at.running_sum[r] * correction + added;
    at.correction[r] = correction;
    if (!in.drop.active()) return;
    float factor[K];
    in.drop.fill(
        static_cast<std::uint64_t>((at.head * in.shape.sequence + t) * in.shape.sequence + s0), end,
        factor);
    for (int c = begin; c < end; ++c) row[c] *= factor[c];
  }

  TESSERA_FUNCTION void finish(QueryTile const& at, float const (&sum)[Sums::each][4][8]) const {
    for (int i = 0; i < Sums::each; ++i) {
      if (!Sums::has(at.thread, i)) continue;
      for (int r = 0; r < 4; ++r) {
        int const row = Sums::row(at.thread, i, r);
        float const factor = 1.0f / at.running_sum[row];
        for (int c = 0; c < 8; c += 4) {
          Float4 four;
          for (int n = 0; n < 4; ++n) four.v[n] = sum[i][r][c + n] * factor;
          out.write(at.b, at.t0 + row, at.h,
                    striped_column<Sums>(Sums::column_group(at.thread, i), c), four);
        }
      }
    }
    for (int r = at.thread; r < Q; r += Threads)
      if (at.t0 + r < in.shape.sequence)
        lse[at.head * in.shape.sequence + at.t0 + r] =
            at.running_max[r] + std::log(at.running_sum[r]);
  }
};

}  // namespace tessera::kernels::detail
