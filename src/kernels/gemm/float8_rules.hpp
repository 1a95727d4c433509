#pragma once
/// Scale and cast of fp8 operands, one source for both traversals.

#include <Kokkos_Core.hpp>
#include <bit>
#include <cstdint>

#include "launch/device_code.hpp"
#include "launch/launch.hpp"
#include "launch/pack.hpp"
#include "tessera/core/float8.hpp"
#include "tessera/core/rounding.hpp"
#include "tessera/kernels/gemm/float8.hpp"

namespace tessera::kernels::detail {

/// Elements whose largest is found by one team.
inline constexpr std::int64_t float8_scale_tile = 16384;

/// fp8 of a number. On a device PTX ISA, "cvt.rn.satfinite": what round() computes, NaN included.
/// The instruction takes two numbers; the second is the lower byte.
TESSERA_FUNCTION inline std::uint8_t float8_code(float8_e4m3, float value) {
#if defined(TESSERA_PTX) && TESSERA_PTX >= 890
  std::uint16_t pair;
  asm("cvt.rn.satfinite.e4m3x2.f32 %0, %1, %2;" : "=h"(pair) : "f"(0.0f), "f"(value));
  return static_cast<std::uint8_t>(pair);
#else
  return float8_e4m3::round(value);
#endif
}
TESSERA_FUNCTION inline std::uint8_t float8_code(float8_e5m2, float value) {
#if defined(TESSERA_PTX) && TESSERA_PTX >= 890
  std::uint16_t pair;
  asm("cvt.rn.satfinite.e5m2x2.f32 %0, %1, %2;" : "=h"(pair) : "f"(0.0f), "f"(value));
  return static_cast<std::uint8_t>(pair);
#else
  return float8_e5m2::round(value);
#endif
}

/// |x|, infinity for NaN: a maximum of these sees every value that is not finite.
TESSERA_FUNCTION inline float magnitude(float x) {
  std::uint32_t const m = std::bit_cast<std::uint32_t>(x) & 0x7FFFFFFFu;
  return std::bit_cast<float>(m < 0x7F800000u ? m : 0x7F800000u);
}

/// partial[tile] = largest magnitude of a tile. A maximum is the same in any order.
template <class T>
struct LargestOfTile {
  float* partial;
  T const* in;
  std::int64_t numel;
  bool packed;  ///< `in` begins at a pack

  template <class Team>
  KOKKOS_FUNCTION void operator()(Team const& team, std::int64_t tile) const {
    std::int64_t const begin = tile * float8_scale_tile, left = numel - begin;
    T const* const from = in + begin;
    float largest = 0.0f;
    for_chunks(team, left < float8_scale_tile ? left : float8_scale_tile,
               [&](std::int64_t first, int count) {
                 if (Team::chunk == 4 && count == 4 && packed) {
                   float x[4];
                   read_floats(x, from + first);
                   TESSERA_UNROLL
                   for (int i = 0; i < 4; ++i) take(largest, x[i]);
                 } else {
                   float most = 0.0f;
#pragma omp simd reduction(max : most)
                   for (int i = 0; i < count; ++i) take(most, load(from[first + i]));
                   largest = most < largest ? largest : most;
                 }
               });
    largest = team.max(largest);
    if (team.rank() == 0) partial[tile] = largest;
  }
  KOKKOS_INLINE_FUNCTION static void take(float& largest, float x) {
    float const m = magnitude(x);
    largest = m < largest ? largest : m;
  }
};

/// The exponent of the scale by the exponents and fractions of both numbers; exact.
TESSERA_FUNCTION inline float float8_scale_of(float largest_value, std::uint32_t format_largest) {
  std::uint32_t const largest = std::bit_cast<std::uint32_t>(largest_value);
  if (largest == 0) return 1.0f;
  if (largest >= 0x7F800000u) return std::bit_cast<float>(0x7FC00000u);
  constexpr std::uint32_t fraction = 0x7FFFFFu;
  int const exponent = static_cast<int>(format_largest >> 23) - static_cast<int>(largest >> 23) -
                       ((largest & fraction) > (format_largest & fraction) ? 1 : 0);
  return std::bit_cast<float>(static_cast<std::uint32_t>(127 + (exponent < 126 ? exponent : 126))
                              << 23);
}

struct ScaleOfLargest {
  float* scale;
  float const* partial;
  std::int64_t count;
  std::uint32_t format_largest;

  template <class Team>
  KOKKOS_FUNCTION void operator()(Team const& team, std::int64_t) const {
    float largest = 0.0f;
    for (std::int64_t i = team.rank(); i < count; i += team.size())
      largest = partial[i] < largest ? largest : partial[i];
    largest = team.max(largest);
    if (team.rank() != 0) return;
    float const s = float8_scale_of(largest, format_largest);
    scale[0] = s;
    scale[Float8Scale::reciprocal_at] = 1.0f / s;
  }
};

/// A team casts a tile. Its codes go through scratch memory, from which the transposed copy is
/// written; both copies are written in pieces of neighboring bytes.
template <class F8, class T, int Threads>
struct Float8Tile {
  static constexpr int side = 64, pitch = side + 4;  ///< the gap spreads columns over banks
  static constexpr std::size_t scratch_floats = side * pitch / 4;
  static constexpr int piece = 8, column_piece = 16;

  std::uint8_t* to_rows;        ///< or null
  std::uint8_t* to_transposed;  ///< or null
  T const* in;
  float const* scale;
  std::int64_t rows, columns, padded;  ///< rows of the transposed copy with its zeros
  bool packed;                         ///< rows of `in` consist of packs

  TESSERA_FUNCTION std::int64_t strips() const { return ceil_divide(columns, side); }
  std::int64_t teams() const { return ceil_divide(padded, side) * strips(); }

  template <class Team>
  TESSERA_FUNCTION void operator()(Team const& team, std::int64_t index) const {
    std::int64_t const row = index / strips() * side, column = index % strips() * side;
    auto* const codes = reinterpret_cast<std::uint8_t*>(team.scratch());
    float const s = scale[0];
    for (int i = team.rank(); i < side * side / piece; i += Threads) {
      int const r = i / (side / piece), c = i % (side / piece) * piece;
      std::uint32_t word[2] = {0, 0};
      if (row + r < rows && column + c < columns) {
        cast(word, in + (row + r) * columns + column + c, s);
        if (to_rows) write<2>(to_rows + (row + r) * columns + column + c, word);
      }
      auto* const kept = reinterpret_cast<std::uint32_t*>(codes + r * pitch + c);
      kept[0] = word[0], kept[1] = word[1];
    }
    if (!to_transposed) return;
    team.barrier();
    for (int i = team.rank(); i < side * side / column_piece; i += Threads) {
      int const c = i / (side / column_piece), r = i % (side / column_piece) * column_piece;
      if (column + c >= columns || row + r >= padded) continue;
      std::uint32_t word[4];
      TESSERA_UNROLL
      for (int w = 0; w < 4; ++w) {
        std::uint8_t const* const at = codes + (r + 4 * w) * pitch + c;
        word[w] = std::uint32_t{at[0]} | std::uint32_t{at[pitch]} << 8 |
                  std::uint32_t{at[2 * pitch]} << 16 | std::uint32_t{at[3 * pitch]} << 24;
      }
      write<4>(to_transposed + (column + c) * padded + row + r, word);
    }
  }

 private:
  TESSERA_FUNCTION void cast(std::uint32_t (&word)[2], T const* from, float s) const {
    float x[piece];
    if (packed) {
      read_floats(x, from);
    } else {
      TESSERA_UNROLL
      for (int i = 0; i < piece; ++i) x[i] = load(from[i]);
    }
    TESSERA_UNROLL
    for (int i = 0; i < piece; ++i) {
      std::uint32_t const code = float8_code(F8(), x[i] * s);
      word[i / 4] |= code << (8 * (i % 4));
    }
  }
  template <int N>
  TESSERA_FUNCTION static void write(std::uint8_t* to, std::uint32_t const (&word)[N]) {
    Pack<std::uint32_t, N> out;
    TESSERA_UNROLL
    for (int i = 0; i < N; ++i) out.word[i] = word[i];
    out.write(reinterpret_cast<std::uint32_t*>(to));
  }
};

}  // namespace tessera::kernels::detail
