#pragma once
/// Products of small fp32 tiles in the L1 and L2 caches, for the host's attention:
///   c[m, n] (+)= a[m, k] b[k, n]
///
/// A micro-tile of tile_rows x 2 vectors of c stays in registers while k runs. Each step loads two
/// vectors of b and one number of a per row: on AVX-512 16 multiply-adds for 10 loads, so the
/// multipliers are the limit.

#include <cstdint>
#include <cstring>
#include <utility>

namespace tessera::kernels::detail {

#if defined(__AVX512F__)
inline constexpr int tile_lanes = 16;
inline constexpr int tile_rows = 8;
#elif defined(__AVX2__)
inline constexpr int tile_lanes = 8;
inline constexpr int tile_rows = 4;
#else
inline constexpr int tile_lanes = 4;
inline constexpr int tile_rows = 4;
#endif

using TileVector = float __attribute__((vector_size(tile_lanes * sizeof(float))));

inline TileVector load_vector(float const* from) {
  TileVector v;
  std::memcpy(&v, from, sizeof v);
  return v;
}
inline void store_vector(float* to, TileVector const& v) { std::memcpy(to, &v, sizeof v); }

/// Row-major tile with its row length; for the transposed operand, element (i, k) is at data[k *
/// stride + i].
struct TileView {
  float const* data;
  std::int64_t stride;
};

struct MutableTile {
  float* data;
  std::int64_t stride;
};
/// Columns of c, and the depth of the sum.
struct TileExtent {
  int n, k;
};

enum class Operand { plain, transposed };
enum class ProductMode { overwrite, add };

template <Operand A, int Vectors>
inline void multiply_micro_tile(MutableTile c, TileView a, TileView b, int k_count,
                                ProductMode mode) {
  TileVector sum[tile_rows][Vectors];
#pragma GCC unroll 8
  for (int i = 0; i < tile_rows; ++i) {
#pragma GCC unroll 2
    for (int v = 0; v < Vectors; ++v)
      sum[i][v] = mode == ProductMode::add ? load_vector(c.data + i * c.stride + v * tile_lanes)
                                           : TileVector{};
  }
  for (int k = 0; k < k_count; ++k) {
    TileVector right[Vectors];
#pragma GCC unroll 2
    for (int v = 0; v < Vectors; ++v)
      right[v] = load_vector(b.data + k * b.stride + v * tile_lanes);
#pragma GCC unroll 8
    for (int i = 0; i < tile_rows; ++i) {
      float const left = A == Operand::plain ? a.data[i * a.stride + k] : a.data[k * a.stride + i];
#pragma GCC unroll 2
      for (int v = 0; v < Vectors; ++v) sum[i][v] += left * right[v];
    }
  }
#pragma GCC unroll 8
  for (int i = 0; i < tile_rows; ++i) {
#pragma GCC unroll 2
    for (int v = 0; v < Vectors; ++v)
      store_vector(c.data + i * c.stride + v * tile_lanes, sum[i][v]);
  }
}

/// tile_rows rows of c and extent.n columns, a multiple of tile_lanes.
template <Operand A>
inline void multiply_rows(MutableTile c, TileView a, TileView b, TileExtent extent,
                          ProductMode mode) {
  int j = 0;
  for (; j + 2 * tile_lanes <= extent.n; j += 2 * tile_lanes)
    multiply_micro_tile<A, 2>({c.data + j, c.stride}, a, {b.data + j, b.stride}, extent.k, mode);
  if (j < extent.n)
    multiply_micro_tile<A, 1>({c.data + j, c.stride}, a, {b.data + j, b.stride}, extent.k, mode);
}

/// Exchanges the off-diagonal squares of side S in every 2S x 2S square of rows a (upper) and b
/// (lower).
template <int S, int... Lane>
inline void exchange(TileVector& a, TileVector& b, std::integer_sequence<int, Lane...>) {
  TileVector const upper =
      __builtin_shufflevector(a, b, ((Lane & S) == 0 ? Lane : tile_lanes + Lane - S)...);
  TileVector const lower =
      __builtin_shufflevector(a, b, ((Lane & S) == 0 ? Lane + S : tile_lanes + Lane)...);
  a = upper;
  b = lower;
}
template <int S>
inline void exchange_all(TileVector (&row)[tile_lanes]) {
#pragma GCC unroll 16
  for (int i = 0; i < tile_lanes; ++i) {
    if ((i & S) == 0)
      exchange<S>(row[i], row[i + S], std::make_integer_sequence<int, tile_lanes>{});
  }
  if constexpr (S > 1) exchange_all<S / 2>(row);
}

/// out[c, r] = in[r, c] for rows x columns, both multiples of tile_lanes.
inline void transpose_tile(float* out, std::int64_t out_stride, TileView in, int rows,
                           int columns) {
  for (int r = 0; r < rows; r += tile_lanes) {
    for (int c = 0; c < columns; c += tile_lanes) {
      TileVector row[tile_lanes];
#pragma GCC unroll 16
      for (int i = 0; i < tile_lanes; ++i) row[i] = load_vector(in.data + (r + i) * in.stride + c);
      exchange_all<tile_lanes / 2>(row);
#pragma GCC unroll 16
      for (int i = 0; i < tile_lanes; ++i) store_vector(out + (c + i) * out_stride + r, row[i]);
    }
  }
}

}  // namespace tessera::kernels::detail
