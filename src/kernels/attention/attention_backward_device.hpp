#pragma once
/// The device's traversal of the backward pass of attention; the host's is attention_backward.cpp.
/// Scores are recomputed twice, once for dk and dv and once for dq, so that one team sums each
/// gradient: seven products where five would do, for results that repeat bit for bit without a
/// workspace of T x heads rows.
///   P = exp(scale q.k - lse);  dP = dout.v;  dS = P (dP f - delta);  delta = dout.out
///   dv_s = sum_t P f dout_t;   dk_s = sum_t dS scale q_t;            dq_t = scale sum_s dS k_s

#include "attention/attention_device.hpp"
#include "tessera/core/rounding.hpp"

namespace tessera::kernels::detail {

struct FlashBackwardInput {
  FlashInput in;
  FlashRows dout;
  float const *lse, *delta;  ///< [B, heads, T]
};

/// delta of one (b, h, t) per index.
struct FlashDelta {
  AttentionShape shape;
  FlashRows dout, out;
  float* delta;
  TESSERA_FUNCTION void operator()(std::int64_t index) const {
    std::int64_t const head = index / shape.sequence, t = index % shape.sequence,
                       b = head / shape.heads;
    int const h = static_cast<int>(head % shape.heads);
    float sum = 0.0f;
    for (int c = 0; c < shape.head_dim; c += 4) {
      Float4 const d = dout.read(b, t, h, c), o = out.read(b, t, h, c);
      for (int i = 0; i < 4; ++i) sum += d.v[i] * o.v[i];
    }
    delta[index] = sum;
  }
};

/// P f and dS of a tile of queries against a tile of keys, one micro tile per thread.
template <int Width, int Threads>
struct FlashPair {
  using Tiles = FlashTiles<Width>;
  static constexpr int N = Tiles::side, TR = Tiles::pair_rows, TC = Tiles::pair_columns;
  using Scores = MicroTiles<N, N, TR, TC, Threads>;

  FlashBackwardInput from;

  /// Queries from t0 against keys from s0 of one head.
  struct TilePair {
    std::int64_t head, t0, s0;
    int thread;
  };
  /// Operands in scratch memory, in rows of Width + 4.
  struct Operands {
    float *k, *v, *q, *dout;
  };

  /// visit(row, column, P f, dS) for the elements of this thread.
  template <class Visit>
  TESSERA_FUNCTION void operator()(TilePair const& at, Operands const& tiles,
                                   Visit const& visit) const {
    std::int64_t const head = at.head, t0 = at.t0, s0 = at.s0;
    int const thread = at.thread;
    std::int64_t const sequence = from.in.shape.sequence;
    SeenInRow const seen = from.in.seen(head / from.in.shape.heads);
    for (int i = 0; i < Scores::each; ++i) {
      if (!Scores::has(thread, i)) continue;
      float score[TR][TC], dp[TR][TC];
      multiply_rows_by_rows<Scores, Width>(score, thread, i, tiles.q, tiles.k);
      multiply_rows_by_rows<Scores, Width>(dp, thread, i, tiles.dout, tiles.v);
      cap_scores(score, from.in.cap);
      for (int r = 0; r < TR; ++r) {
        int const row = Scores::row(thread, i, r);
        std::int64_t const t = t0 + row;
        bool const inside = t < sequence;
        std::int64_t const hidden = seen.first_key(t);
        float const log_sum = inside ? from.lse[head * sequence + t] : 0.0f,
                    delta = inside ? from.delta[head * sequence + t] : 0.0f;
        for (int c = 0; c < TC; ++c) {
          int const column = Scores::column_group(thread, i) + c * Scores::column_groups;
          std::int64_t const s = s0 + column;
          bool const sees = inside && hidden <= s && s <= t;
          float const p = sees ? fast_exp(score[r][c] - log_sum) : 0.0f,
                      f = sees ? factor(head, t, s) : 0.0f;
          float const slope = from.in.cap.active() ? from.in.cap.slope_at(score[r][c]) : 1.0f;
          visit(row, column, p * f, p * (dp[r][c] * f - delta) * slope);
        }
      }
    }
  }
  TESSERA_FUNCTION float factor(std::int64_t head, std::int64_t t, std::int64_t s) const {
    DropoutFactors const& drop = from.in.drop;
    if (!drop.active()) return 1.0f;
    return drop.factor(static_cast<std::uint64_t>(
        (head * from.in.shape.sequence + t) * from.in.shape.sequence + s));
  }
};

/// Stores a pair's values in scratch as [query, key], or transposed.
template <int N>
struct StorePair {
  float* ds;
  TESSERA_FUNCTION void operator()(int row, int column, float, float value) const {
    ds[row * (N + 4) + column] = value;
  }
};
template <int N>
struct StorePairTransposed {
  float *p, *ds;
  TESSERA_FUNCTION void operator()(int row, int column, float dropped, float value) const {
    p[column * (N + 4) + row] = dropped;
    ds[column * (N + 4) + row] = value;
  }
};

/// Writes a result that threads hold in micro tiles of TR x 8.
template <class Split, int TR>
TESSERA_FUNCTION void write_sums(FlashRows const& to, HeadPart const& at, int thread,
                                 float const (&sum)[Split::each][TR][8], float factor) {
  for (int i = 0; i < Split::each; ++i) {
    if (!Split::has(thread, i)) continue;
    for (int r = 0; r < TR; ++r) {
      for (int c = 0; c < 8; c += 4) {
        Float4 four;
        for (int n = 0; n < 4; ++n) four.v[n] = sum[i][r][c + n] * factor;
        to.write(at.b, at.first + Split::row(thread, i, r), at.h,
                 striped_column<Split>(Split::column_group(thread, i), c), four);
      }
    }
  }
}

/// dq of one tile of queries of one head.
template <int Width, int Threads>
struct FlashQueryBackward {
  using Pair = FlashPair<Width, Threads>;
  static constexpr int N = Pair::N;
  using Sums = MicroTiles<N, Width, 2, 8, Threads>;
  static constexpr int scratch_floats = 4 * N * (Width + 4) + N * (N + 4);

  Pair pair;
  FlashRows dquery;
  std::int64_t tiles;

  static std::int64_t tiles_of(std::int64_t sequence) { return ceil_divide(sequence, N); }
  std::int64_t teams() const { return pair.from.in.shape.batch * pair.from.in.shape.heads * tiles; }

  template <class Team>
  TESSERA_FUNCTION void operator()(Team const& team, std::int64_t index) const {
    FlashInput const& in = pair.from.in;
    std::int64_t const heads = in.shape.batch * in.shape.heads, head = index % heads,
                       t0 = (tiles - 1 - index / heads) * N;
    std::int64_t const b = head / in.shape.heads;
    int const h = static_cast<int>(head % in.shape.heads), kv = h / in.group(),
              thread = team.rank();
    constexpr int tile = N * (Width + 4);
    float* const k = team.scratch();
    typename Pair::Operands const x{k, k + tile, k + 2 * tile, k + 3 * tile};
    float* const ds = k + 4 * tile;

    float sum[Sums::each][2][8] = {};
    read_tile<N, Width, Threads>(team, x.q, in.query, {b, t0, h}, in.shape.scale);
    read_tile<N, Width, Threads>(team, x.dout, pair.from.dout, {b, t0, h}, 1.0f);
    for (std::int64_t s0 = in.seen(b).first_key_tile(t0, N); s0 <= t0; s0 += N) {
      team.barrier();
      read_tile<N, Width, Threads>(team, x.k, in.key, {b, s0, kv}, 1.0f);
      read_tile<N, Width, Threads>(team, x.v, in.value, {b, s0, kv}, 1.0f);
      team.barrier();
      pair({head, t0, s0, thread}, x, StorePair<N>{ds});
      team.barrier();
      for (int i = 0; i < Sums::each; ++i)
        if (Sums::has(thread, i)) add_rows_by_columns<Sums, N, Width>(sum[i], thread, i, ds, x.k);
    }
    write_sums<Sums, 2>(dquery, {b, t0, h}, thread, sum, in.shape.scale);
  }
};

/// dk and dv of one tile of keys of one key-value head: over its query heads in order, then over
/// the queries in order.
template <int Width, int Threads>
struct FlashKeyBackward {
  using Pair = FlashPair<Width, Threads>;
  static constexpr int N = Pair::N;
  using Sums = MicroTiles<N, Width, 2, 8, Threads>;
  static constexpr int scratch_floats = 4 * N * (Width + 4) + 2 * N * (N + 4);

  Pair pair;
  FlashRows dkey, dvalue;
  std::int64_t tiles;

  static std::int64_t tiles_of(std::int64_t sequence) { return ceil_divide(sequence, N); }
  std::int64_t teams() const {
    return pair.from.in.shape.batch * pair.from.in.shape.kv_heads * tiles;
  }

  /// Tiles of the first keys, which the most queries see, run first.
  template <class Team>
  TESSERA_FUNCTION void operator()(Team const& team, std::int64_t index) const {
    FlashInput const& in = pair.from.in;
    std::int64_t const heads = in.shape.batch * in.shape.kv_heads, s0 = index / heads * N,
                       b = index % heads / in.shape.kv_heads;
    int const kv = static_cast<int>(index % in.shape.kv_heads), thread = team.rank();
    constexpr int tile = N * (Width + 4);
    float* const k = team.scratch();
    typename Pair::Operands const x{k, k + tile, k + 2 * tile, k + 3 * tile};
    float *const p = k + 4 * tile, *const ds = p + N * (N + 4);

    float dk[Sums::each][2][8] = {}, dv[Sums::each][2][8] = {};
    read_tile<N, Width, Threads>(team, x.k, in.key, {b, s0, kv}, 1.0f);
    read_tile<N, Width, Threads>(team, x.v, in.value, {b, s0, kv}, 1.0f);
    std::int64_t const last = s0 + N < in.shape.sequence ? s0 + N : in.shape.sequence,
                       end = in.seen(b).end_of_queries(last - 1);
    for (int h = kv * in.group(); h < (kv + 1) * in.group(); ++h) {
      for (std::int64_t t0 = s0; t0 < end; t0 += N) {
        team.barrier();
        read_tile<N, Width, Threads>(team, x.q, in.query, {b, t0, h}, in.shape.scale);
        read_tile<N, Width, Threads>(team, x.dout, pair.from.dout, {b, t0, h}, 1.0f);
        team.barrier();
        pair({b * in.shape.heads + h, t0, s0, thread}, x, StorePairTransposed<N>{p, ds});
        team.barrier();
        for (int i = 0; i < Sums::each; ++i) {
          if (!Sums::has(thread, i)) continue;
          add_rows_by_columns<Sums, N, Width>(dv[i], thread, i, p, x.dout);
          add_rows_by_columns<Sums, N, Width>(dk[i], thread, i, ds, x.q);
        }
      }
    }
    write_sums<Sums, 2>(dkey, {b, s0, kv}, thread, dk, 1.0f);
    write_sums<Sums, 2>(dvalue, {b, s0, kv}, thread, dv, 1.0f);
  }
};

}  // namespace tessera::kernels::detail
