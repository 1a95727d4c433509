#pragma once
/// Attention by tiles with an online softmax for teams of threads that share a scratch memory: what
/// a CUDA block runs. Dao et al., "FlashAttention", NeurIPS 2022, algorithms 1 and 4;
/// "FlashAttention-2", arXiv 2307.08691, sections 3.1 and 3.2.
///
/// No Kokkos here: a team is anything with rank(), barrier() and scratch(), so that the very
/// instance of the device can be run by host threads. `Width` is the head width in scratch, zeros
/// beyond head_dim; `Threads` the size of the team. Every element of every result is summed by one
/// thread in an order that depends on the shape alone: results repeat bit for bit, no atomics.

#include <cmath>
#include <cstdint>

#include "detail/attention_operands.hpp"

namespace tessera::kernels::detail {

/// Sixteen bytes that are loaded and stored at once.
struct alignas(16) Float4 {
  float v[4];
};

/// Rows of heads of any dtype, four neighboring elements at a time.
struct FlashRows {
  void* base = nullptr;
  std::int64_t row_stride = 0, sequence = 0;
  int head_dim = 0;
  Dtype dtype = Dtype::fp32;
  bool vectorized = false;  ///< every four elements from a multiple of four on are aligned

  TESSERA_FUNCTION std::int64_t at(std::int64_t b, std::int64_t t, int h, int c) const {
    return (b * sequence + t) * row_stride + std::int64_t{h} * head_dim + c;
  }
  template <class T>
  TESSERA_FUNCTION Float4 read_typed(std::int64_t index, int count) const {
    struct alignas(4 * sizeof(T)) Pack {
      T v[4];
    };
    Float4 out{};
    T const* const from = static_cast<T const*>(base) + index;
    if (vectorized && count >= 4) {
      Pack const pack = *reinterpret_cast<Pack const*>(from);
      for (int i = 0; i < 4; ++i) out.v[i] = load(pack.v[i]);
    } else {
      for (int i = 0; i < 4; ++i)
        if (i < count) out.v[i] = load(from[i]);
    }
    return out;
  }
  template <class T>
  TESSERA_FUNCTION void write_typed(std::int64_t index, int count, Float4 const& value) const {
    struct alignas(4 * sizeof(T)) Pack {
      T v[4];
    };
    T* const to = static_cast<T*>(base) + index;
    if (vectorized && count >= 4) {
      Pack pack;
      for (int i = 0; i < 4; ++i) store(pack.v[i], value.v[i]);
      *reinterpret_cast<Pack*>(to) = pack;
    } else {
      for (int i = 0; i < 4; ++i)
        if (i < count) store(to[i], value.v[i]);
    }
  }
  /// Elements c .. c + 3 of (b, t, h); zeros beyond the sequence and the head.
  TESSERA_FUNCTION Float4 read(std::int64_t b, std::int64_t t, int h, int c) const {
    int const count = t < sequence ? head_dim - c : 0;
    if (count <= 0) return Float4{};
    std::int64_t const index = at(b, t, h, c);
    return dtype == Dtype::fp32   ? read_typed<float>(index, count)
           : dtype == Dtype::bf16 ? read_typed<bfloat16>(index, count)
                                  : read_typed<float16>(index, count);
  }
  TESSERA_FUNCTION void write(std::int64_t b, std::int64_t t, int h, int c,
                              Float4 const& value) const {
    int const count = t < sequence ? head_dim - c : 0;
    if (count <= 0) return;
    std::int64_t const index = at(b, t, h, c);
    if (dtype == Dtype::fp32)
      write_typed<float>(index, count, value);
    else if (dtype == Dtype::bf16)
      write_typed<bfloat16>(index, count, value);
    else
      write_typed<float16>(index, count, value);
  }
};

struct FlashInput {
  AttentionShape shape;
  FlashRows query, key, value;
  DropoutFactors drop;
  TESSERA_FUNCTION int group() const { return shape.heads / shape.kv_heads; }
};

/// A Rows x Columns result in micro tiles of TR x TC, dealt to the threads. Rows of a micro tile
/// are `row_groups` apart, so that neighboring threads read neighboring rows: no two of a quarter
/// warp meet in a bank.
template <int Rows, int Columns, int TR, int TC, int Threads>
struct MicroTiles {
  static constexpr int row_groups = Rows / TR, column_groups = Columns / TC,
                       tiles = row_groups * column_groups;
  static constexpr int each = (tiles + Threads - 1) / Threads;
  static_assert(Rows % TR == 0 && Columns % TC == 0);
  TESSERA_FUNCTION static bool has(int thread, int i) { return thread + i * Threads < tiles; }
  TESSERA_FUNCTION static int row(int thread, int i, int r) {
    return (thread + i * Threads) / column_groups + r * row_groups;
  }
  TESSERA_FUNCTION static int column_group(int thread, int i) {
    return (thread + i * Threads) % column_groups;
  }
};

/// Rows of one head from a position on.
struct HeadPart {
  std::int64_t b, first;
  int h;
};

/// tile [rows, stride] of scratch <- factor * rows.
template <int Rows, int Width, int Threads, class Team>
TESSERA_FUNCTION void read_tile(Team const& team, float* tile, FlashRows const& from,
                                HeadPart const& at, float factor) {
  constexpr int chunks = Width / 4, stride = Width + 4;
  for (int i = team.rank(); i < Rows * chunks; i += Threads) {
    int const r = i / chunks, c = i % chunks * 4;
    Float4 four = from.read(at.b, at.first + r, at.h, c);
    for (int k = 0; k < 4; ++k) four.v[k] *= factor;
    *reinterpret_cast<Float4*>(tile + r * stride + c) = four;
  }
}

/// out[r, c] = a[r, :] . b[c, :] for micro tile i of this thread; a and b have rows of Width + 4.
template <class Split, int Width, int TR, int TC>
TESSERA_FUNCTION void multiply_rows_by_rows(float (&out)[TR][TC], int thread, int i, float const* a,
                                            float const* b) {
  constexpr int stride = Width + 4;
  for (int r = 0; r < TR; ++r)
    for (int c = 0; c < TC; ++c) out[r][c] = 0.0f;
  int const group = Split::column_group(thread, i);
  for (int k = 0; k < Width; k += 4) {
    Float4 left[TR], right[TC];
    for (int r = 0; r < TR; ++r)
      left[r] = *reinterpret_cast<Float4 const*>(a + Split::row(thread, i, r) * stride + k);
    for (int c = 0; c < TC; ++c)
      right[c] =
          *reinterpret_cast<Float4 const*>(b + (group + c * Split::column_groups) * stride + k);
    for (int r = 0; r < TR; ++r)
      for (int c = 0; c < TC; ++c)
        for (int e = 0; e < 4; ++e) out[r][c] += left[r].v[e] * right[c].v[e];
  }
}

/// Column of element c of a micro tile in a product by columns: four neighbors, then the next four
/// a stripe further.
template <class Split>
TESSERA_FUNCTION int striped_column(int group, int c) {
  return group * 4 + c / 4 * (Split::column_groups * 4) + c % 4;
}

/// sum[r, c] += x[r, :] . y[:, c] over Depth; x has rows of Depth + 4, y of Width + 4.
template <class Split, int Depth, int Width, int TR, int TC>
TESSERA_FUNCTION void add_rows_by_columns(float (&sum)[TR][TC], int thread, int i, float const* x,
                                          float const* y) {
  int const group = Split::column_group(thread, i);
  for (int k = 0; k < Depth; k += 4) {
    Float4 left[TR];
    for (int r = 0; r < TR; ++r)
      left[r] = *reinterpret_cast<Float4 const*>(x + Split::row(thread, i, r) * (Depth + 4) + k);
    for (int e = 0; e < 4; ++e) {
      for (int c = 0; c < TC; c += 4) {
        Float4 const right = *reinterpret_cast<Float4 const*>(y + (k + e) * (Width + 4) +
                                                              striped_column<Split>(group, c));
        for (int r = 0; r < TR; ++r)
          for (int n = 0; n < 4; ++n) sum[r][c + n] += left[r].v[e] * right.v[n];
      }
    }
  }
}

/// Tiles that fit 48 KiB of scratch and give 128 threads equal shares.
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

/// One tile of queries of one head against the keys it sees.
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
    return (sequence + Q - 1) / Q;
  }
  std::int64_t teams() const { return in.shape.batch * in.shape.heads * tiles; }

  /// What every thread of a team knows; the arrays lie in scratch.
  struct Place {
    std::int64_t head, b, t0;
    int h, thread;
    float *most, *total, *correction;  ///< [Q]
  };

  /// The tiles with the most keys come first, so that no long one starts last.
  template <class Team>
  TESSERA_FUNCTION void operator()(Team const& team, std::int64_t index) const {
    float* const q = team.scratch();
    float *const rows = q + Q * (Width + 4), *const p = rows + K * (Width + 4),
                 *const most = p + Q * (K + 4);
    std::int64_t const heads = in.shape.batch * in.shape.heads, head = index % heads;
    Place const at{head,
                   head / in.shape.heads,
                   (tiles - 1 - index / heads) * Q,
                   static_cast<int>(head % in.shape.heads),
                   team.rank(),
                   most,
                   most + Q,
                   most + 2 * Q};
    int const kv = at.h / in.group();

    float sum[Sums::each][4][8] = {};
    read_tile<Q, Width, Threads>(team, q, in.query, {at.b, at.t0, at.h}, in.shape.scale);
    for (int r = at.thread; r < Q; r += Threads) at.most[r] = at.total[r] = 0.0f;
    std::int64_t const end = at.t0 + Q < in.shape.sequence ? at.t0 + Q : in.shape.sequence;
    for (std::int64_t s0 = 0; s0 < end; s0 += K) {
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
      for (int r = 0; r < TR; ++r)
        for (int c = 0; c < TC; ++c)
          p[Scores::row(thread, i, r) * (K + 4) + Scores::column_group(thread, i) +
            c * Scores::column_groups] = values[r][c];
    }
  }

  /// row <- dropout(exp(row - maximum so far)), 0 for keys that its query does not see;
  /// `correction` becomes the factor for what was summed with the former maximum.
  TESSERA_FUNCTION void update_softmax(float* row, Place const& at, int r, std::int64_t s0) const {
    std::int64_t const t = at.t0 + r, left = t < in.shape.sequence ? t - s0 + 1 : 0;
    int const seen = left < 0 ? 0 : left < K ? static_cast<int>(left) : K;
    if (seen == 0) {
      for (int c = 0; c < K; ++c) row[c] = 0.0f;
      at.correction[r] = 1.0f;
      return;
    }
    float largest = s0 == 0 ? row[0] : at.most[r];
    for (int c = 0; c < seen; ++c) largest = row[c] > largest ? row[c] : largest;
    float const correction = s0 == 0 ? 0.0f : fast_exp(at.most[r] - largest);
    float added = 0.0f;
    for (int c = 0; c < K; ++c) {
      row[c] = c < seen ? fast_exp(row[c] - largest) : 0.0f;
      added += row[c];
    }
    at.most[r] = largest;
    at.total[r] = at.total[r] * correction + added;
    at.correction[r] = correction;
    if (!in.drop.active()) return;
    float factor[K];
    in.drop.fill(
        static_cast<std::uint64_t>((at.head * in.shape.sequence + t) * in.shape.sequence + s0),
        seen, factor);
    for (int c = 0; c < seen; ++c) row[c] *= factor[c];
  }

  TESSERA_FUNCTION void finish(Place const& at, float const (&sum)[Sums::each][4][8]) const {
    for (int i = 0; i < Sums::each; ++i) {
      if (!Sums::has(at.thread, i)) continue;
      for (int r = 0; r < 4; ++r) {
        int const row = Sums::row(at.thread, i, r);
        float const factor = 1.0f / at.total[row];
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
        lse[at.head * in.shape.sequence + at.t0 + r] = at.most[r] + std::log(at.total[r]);
  }
};

}  // namespace tessera::kernels::detail
