#pragma once
/// The device's traversal of embeddings: a thread processes N neighboring columns (16 bytes where
/// width and addresses allow it, else one). The host's is embedding.cpp.

#include <cstdint>

#include "elementwise/dropout.hpp"
#include "launch/pack.hpp"
#include "tessera/core/rounding.hpp"

namespace tessera::kernels::detail {

struct PackPosition {
  std::int64_t row, column;
};
/// Pack i of rows of columns / N packs. Divides in 32 bits where they do: a device computes 64 bits
/// in a hundred instructions.
template <int N>
TESSERA_FUNCTION PackPosition pack_position(std::int64_t i, std::int64_t columns) {
  std::int64_t const packs = columns / N;
  if (i >> 32 == 0 && packs >> 32 == 0) {
    auto const index = static_cast<std::uint32_t>(i), each = static_cast<std::uint32_t>(packs);
    return {index / each, std::int64_t{index % each} * N};
  }
  return {i / packs, i % packs * N};
}

/// 1 for all when the dropout is off.
template <int N>
TESSERA_FUNCTION void pack_factors(DropoutFactors const& factors, std::int64_t element,
                                   float (&factor)[N]) {
  TESSERA_UNROLL
  for (int k = 0; k < N; ++k) factor[k] = 1.0f;
  if (!factors.active()) return;
  if constexpr (N == 1)
    factor[0] = factors.factor(static_cast<std::uint64_t>(element));
  else
    factors.pack(static_cast<std::uint64_t>(element), factor);
}

/// out = sum, or out += sum.
template <class G, int N>
TESSERA_FUNCTION void write_sums(G* out, float (&sum)[N], bool accumulate) {
  if (accumulate) {
    float before[N];
    read_floats(before, out);
    TESSERA_UNROLL
    for (int k = 0; k < N; ++k) sum[k] += before[k];
  }
  write_floats(out, sum);
}

/// One pack of one position.
template <class T, int N>
struct EmbedPack {
  T* out;
  std::int32_t const *tokens, *ids;  ///< ids may be null
  T const *wte, *wpe;                ///< wpe may be null
  std::int64_t sequence, columns;
  DropoutFactors factors;

  TESSERA_FUNCTION void operator()(std::int64_t i) const {
    PackPosition const at = pack_position<N>(i, columns);
    RowPack<T, N> token, place{}, y{};
    token.read(wte + tokens[at.row] * columns + at.column);
    std::int64_t const id = ids == nullptr ? at.row % sequence : ids[at.row];
    if (wpe != nullptr) place.read(wpe + id * columns + at.column);
    float factor[N];
    pack_factors(factors, at.row * columns + at.column, factor);
    TESSERA_UNROLL
    for (int k = 0; k < N; ++k)
      y.set(k, (wpe != nullptr ? token.get(k) + place.get(k) : token.get(k)) * factor[k]);
    y.write(out + at.row * columns + at.column);
  }
};

/// Positions sorted by token are processed in slices of 32. A token whose positions are in one
/// slice is summed there. For a token that spans slices, each slice writes a partial sum:
/// parts[slice][0] for the token that continues from the previous slice, parts[slice][1] for the
/// one that begins here.
template <class G, class T>
struct TokenSums {
  static constexpr std::int64_t slice = 32;

  G* dwte;
  float* parts;  ///< [slices, 2, columns]
  T const* dout;
  std::int32_t const *tokens, *order;
  std::int64_t positions, columns;
  bool accumulate;
  DropoutFactors factors;

  static std::int64_t slices(std::int64_t positions) { return ceil_divide(positions, slice); }
  TESSERA_FUNCTION std::int32_t token_at(std::int64_t i) const { return tokens[order[i]]; }
  TESSERA_FUNCTION std::int64_t end_of(std::int64_t s) const {
    return (s + 1) * slice < positions ? (s + 1) * slice : positions;
  }
  /// Whether the token at @p i, the first of a slice, has no earlier positions.
  TESSERA_FUNCTION bool begins_at(std::int64_t i) const {
    return i == 0 || token_at(i - 1) != token_at(i);
  }
  TESSERA_FUNCTION float* part(std::int64_t s, int which, std::int64_t column) const {
    return parts + (2 * s + which) * columns + column;
  }

  template <int N>
  TESSERA_FUNCTION void add(std::int32_t token, std::int64_t column, float (&sum)[N]) const {
    write_sums(dwte + token * columns + column, sum, accumulate);
  }
};

/// One pack of one slice: the rows of dout in the order of the slice, four of them in flight.
template <class G, class T, int N>
struct SumTokensOfSlice {
  static constexpr int flight = 4;
  TokenSums<G, T> sums;

  TESSERA_FUNCTION void operator()(std::int64_t i) const {
    PackPosition const place = pack_position<N>(i, sums.columns);
    std::int64_t const s = place.row, begin = s * sums.slice, end = sums.end_of(s);
    std::int32_t token = sums.token_at(begin);
    bool begins = sums.begins_at(begin);
    float sum[N] = {};
    for (std::int64_t at = begin; at < end; at += flight) {
      std::int64_t position[flight];
      std::int32_t next[flight];
      RowPack<T, N> row[flight];
      TESSERA_UNROLL
      for (int r = 0; r < flight; ++r) position[r] = sums.order[at + r < end ? at + r : end - 1];
      TESSERA_UNROLL
      for (int r = 0; r < flight; ++r) next[r] = sums.tokens[position[r]];
      TESSERA_UNROLL
      for (int r = 0; r < flight; ++r)
        row[r].read(sums.dout + position[r] * sums.columns + place.column);
      TESSERA_UNROLL
      for (int r = 0; r < flight; ++r) {
        if (at + r >= end) continue;
        if (next[r] != token) {
          write_part(token, s, place.column, begins, true, sum);
          token = next[r];
          begins = true;
          TESSERA_UNROLL
          for (int k = 0; k < N; ++k) sum[k] = 0.0f;
        }
        float factor[N];
        pack_factors(sums.factors, position[r] * sums.columns + place.column, factor);
        TESSERA_UNROLL
        for (int k = 0; k < N; ++k) sum[k] += row[r].get(k) * factor[k];
      }
    }
    write_part(token, s, place.column, begins, end == sums.positions || sums.token_at(end) != token,
               sum);
  }

  TESSERA_FUNCTION void write_part(std::int32_t token, std::int64_t s, std::int64_t column,
                                   bool begins, bool ends, float (&sum)[N]) const {
    if (begins && ends)
      sums.add(token, column, sum);
    else
      write_floats(sums.part(s, begins ? 1 : 0, column), sum);
  }
};

/// One pack of a token that begins in a slice and continues: its partial sums in the order of the
/// slices, eight of them in flight.
template <class G, class T, int N>
struct SumTokensAcrossSlices {
  static constexpr int flight = 8;
  TokenSums<G, T> sums;

  TESSERA_FUNCTION void operator()(std::int64_t i) const {
    PackPosition const place = pack_position<N>(i, sums.columns);
    std::int64_t const s = place.row, begin = s * sums.slice, end = sums.end_of(s),
                       slices = ceil_divide(sums.positions, sums.slice);
    if (end == sums.positions) return;
    std::int32_t const token = sums.token_at(end - 1);
    if (sums.token_at(end) != token) return;
    if (sums.token_at(begin) == token && !sums.begins_at(begin)) return;
    float sum[N];
    read_floats(sum, sums.part(s, 1, place.column));
    bool continues = true;
    for (std::int64_t next = s + 1; continues && next < slices; next += flight) {
      bool has[flight];
      float part[flight][N];
      TESSERA_UNROLL
      for (int r = 0; r < flight; ++r) {
        std::int64_t const at = next + r < slices ? next + r : slices - 1;
        has[r] = next + r < slices && sums.token_at(at * sums.slice) == token;
        read_floats(part[r],
                    // Sum of another token where has[r] is false
                    sums.part(at, 0, place.column));
      }
      TESSERA_UNROLL
      for (int r = 0; r < flight; ++r) {
        continues = continues && has[r];
        TESSERA_UNROLL
        for (int k = 0; k < N; ++k) sum[k] += continues ? part[r][k] : 0.0f;
      }
    }
    sums.add(token, place.column, sum);
  }
};

/// One pack of one position of the sequence: the batch's rows in order, four of them in flight.
template <class G, class T, int N>
struct SumPositions {
  static constexpr int flight = 4;
  G* dwpe;
  T const* dout;
  std::int64_t batch, sequence, columns;
  bool accumulate;
  DropoutFactors factors;

  TESSERA_FUNCTION void operator()(std::int64_t i) const {
    PackPosition const at = pack_position<N>(i, columns);
    float sum[N] = {};
    for (std::int64_t b = 0; b < batch; b += flight) {
      RowPack<T, N> row[flight];
      TESSERA_UNROLL
      for (int r = 0; r < flight; ++r)
        if (b + r < batch) row[r].read(dout + element(b + r, at));
      TESSERA_UNROLL
      for (int r = 0; r < flight; ++r) {
        if (b + r >= batch) continue;
        float factor[N];
        pack_factors(factors, element(b + r, at), factor);
        TESSERA_UNROLL
        for (int k = 0; k < N; ++k) sum[k] += row[r].get(k) * factor[k];
      }
    }
    write_sums(dwpe + at.row * columns + at.column, sum, accumulate);
  }
  TESSERA_FUNCTION std::int64_t element(std::int64_t b, PackPosition const& at) const {
    return (b * sequence + at.row) * columns + at.column;
  }
};

}  // namespace tessera::kernels::detail
