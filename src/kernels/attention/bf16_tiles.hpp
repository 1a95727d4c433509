#pragma once
/// The operands of products of bf16 tiles by AMX, for the host's attention. Only with
/// TESSERA_AMX_TILES.

#include "attention/attention_tiles.hpp"
#include "launch/amx.hpp"
#include "launch/fast_math.hpp"

namespace tessera::kernels::detail {

/// Heads are padded with zeros to full steps of k.
constexpr int padded_depth(int head_dim) {
  return (head_dim + amx_block - 1) / amx_block * amx_block;
}

/// The keys that a group of amx_block queries from position t sees in the tile of @p tile keys from
/// position s; padded to full products.
inline KeySpan amx_span(std::int64_t t, std::int64_t s, int tile, std::int64_t sequence) {
  std::int64_t const last = std::min(t + amx_block, sequence) - 1;
  int const keys = static_cast<int>(std::min<std::int64_t>(tile, last - s + 1));
  return {keys, padded_depth(keys)};
}

using Bf16Vector = std::uint16_t __attribute__((vector_size(64)));
using WordVector = std::uint32_t __attribute__((vector_size(64)));

template <class Vector>
inline Vector load_as(void const* from) {
  Vector v;
  std::memcpy(&v, from, sizeof v);
  return v;
}
template <class Vector>
inline void store_as(void* to, Vector const& v) {
  std::memcpy(to, &v, sizeof v);
}

/// tile[i, :] = row(b, first + i, h) for rows inside the sequence, 0 for the other rows and for the
/// padding.
inline void copy_rows(bfloat16* tile, int width, HeadRows<bfloat16 const> const& rows,
                      HeadRange const& range) {
  auto const [b, first, h, count] = range;
  int const inside = static_cast<int>(std::clamp<std::int64_t>(rows.sequence - first, 0, count));
  int const full = rows.head_dim / 32 * 32;  // in vectors: a call for each short row costs more
  auto const rest = static_cast<std::size_t>(rows.head_dim - full) * sizeof(bfloat16);
  for (int i = 0; i < inside; ++i) {
    bfloat16 const* const from = rows.row(b, first + i, h);
    bfloat16* const to = tile + i * width;
    for (int c = 0; c < full; c += 32) store_as(to + c, load_as<Bf16Vector>(from + c));
    if (full == width) continue;
    std::memcpy(to + full, from + full, rest);
    std::fill(to + rows.head_dim, to + width, bfloat16{});
  }
  std::fill(tile + inside * width, tile + count * width, bfloat16{});
}

/// Elements a[0], b[0], a[1], b[1], ... of the lower halves, and of the upper ones.
inline Bf16Vector mix_lower(Bf16Vector const& a, Bf16Vector const& b) {
  return __builtin_shufflevector(a, b, 0, 32, 1, 33, 2, 34, 3, 35, 4, 36, 5, 37, 6, 38, 7, 39, 8,
                                 40, 9, 41, 10, 42, 11, 43, 12, 44, 13, 45, 14, 46, 15, 47);
}
inline Bf16Vector mix_upper(Bf16Vector const& a, Bf16Vector const& b) {
  return __builtin_shufflevector(a, b, 16, 48, 17, 49, 18, 50, 19, 51, 20, 52, 21, 53, 22, 54, 23,
                                 55, 24, 56, 25, 57, 26, 58, 27, 59, 28, 60, 29, 61, 30, 62, 31,
                                 63);
}

/// pairs(r / 2, c) of the tile's rows: b of a product over rows. @p rows  even  @p columns  a
/// multiple of 32
inline void pair_rows(std::uint32_t* pairs, std::int64_t stride, Bf16Rows in, int rows,
                      int columns) {
  for (int r = 0; r < rows; r += 2) {
    bfloat16 const* const from = in.data + r * in.stride;
    std::uint32_t* const to = pairs + r / 2 * stride;
    for (int c = 0; c < columns; c += 32) {
      auto const first = load_as<Bf16Vector>(from + c),
                 second = load_as<Bf16Vector>(from + in.stride + c);
      store_as(to + c, mix_lower(first, second));
      store_as(to + c + 16, mix_upper(first, second));
    }
  }
}

inline void transpose_words(void* out, std::int64_t out_stride, Bf16Rows in, int rows,
                            int columns) {
  transpose_tile(static_cast<float*>(out), out_stride,
                 {static_cast<float const*>(static_cast<void const*>(in.data)), in.stride / 2},
                 rows, columns / 2);
}
/// pairs(c / 2, r) of the tile's columns: b of a product over columns. @p rows  a multiple of 16
/// @p columns  of 32
inline void pair_columns(std::uint32_t* pairs, std::int64_t stride, Bf16Rows in, int rows,
                         int columns) {
  transpose_words(pairs, stride, in, rows, columns);
}
/// out[c, r] = in[r, c]. @p rows  a multiple of 16, at most 64  @p columns  of 32
inline void transpose_bf16(bfloat16* out, std::int64_t stride, Bf16Rows in, int rows, int columns) {
  using HalfVector = std::uint16_t __attribute__((vector_size(32)));
  alignas(64) std::uint32_t words[16 * 64];
  for (int c = 0; c < columns; c += 32) {
    transpose_words(words, 64, {in.data + c, in.stride}, rows, 32);
    for (int pair = 0; pair < 16; ++pair) {
      bfloat16* const to = out + (c + 2 * pair) * stride;
      for (int r = 0; r < rows; r += 16) {
        auto const word = load_as<WordVector>(words + pair * 64 + r);
        store_as(to + r, __builtin_convertvector(word, HalfVector));
        store_as(to + stride + r, __builtin_convertvector(word >> 16, HalfVector));
      }
    }
  }
}

/// Rounds to nearest even; denormal numbers become 0, as in products of AMX. The upper 16 elements
/// of the result are those of @p upper.
inline Bf16Vector round_to_bf16(TileVector const& lower, TileVector const& upper) {
  Bf16Vector out;
  asm("vcvtne2ps2bf16 %1, %2, %0" : "=v"(out) : "v"(lower), "v"(upper));
  return out;
}
/// The pairs of two rows.
inline Bf16Vector round_pairs(TileVector const& first, TileVector const& second) {
  Bf16Vector const both = round_to_bf16(first, second);
  return __builtin_shufflevector(both, both, 0, 16, 1, 17, 2, 18, 3, 19, 4, 20, 5, 21, 6, 22, 7, 23,
                                 8, 24, 9, 25, 10, 26, 11, 27, 12, 28, 13, 29, 14, 30, 15, 31);
}

/// fast_exp() of numbers that are at most a rounding above 0, or NaN.
inline TileVector exp_below_0(TileVector const& x) {
  auto const is_0 = x < -87.33f;
  return is_0 ? TileVector{} : normal_exp<TileVector, WordVector>(x);
}

/// The numbers of keys [first, first + 16) that are in @p seen, @p other for the others.
inline TileVector where_seen(TileVector const& v, SeenKeys const& seen, int first, float other) {
  using IntVector = std::int32_t __attribute__((vector_size(64)));
  constexpr IntVector number{0, 1, 2, 3, 4, 5, 6, 7, 8, 9, 10, 11, 12, 13, 14, 15};
  IntVector const key = number + first;
  auto const is_seen = (key >= seen.begin) & (key < seen.end);
  return is_seen ? v : TileVector{} + other;
}

}  // namespace tessera::kernels::detail
