#include "optimizer/quantized_chunk.hpp"

#if defined(__AVX512F__) && defined(__AVX512BW__) && defined(__AVX512DQ__)
#define TESSERA_MAPS_IN_REGISTERS
#if defined(__GNUC__) && !defined(__clang__)
// GCC 12 warns of its own header (GCC bug 105593).
#pragma GCC diagnostic ignored "-Wuninitialized"
#pragma GCC diagnostic ignored "-Wmaybe-uninitialized"
#endif
#include <immintrin.h>

#include <array>
#include <bit>
#include <cmath>
#include <limits>
#endif

namespace tessera::kernels::detail {
namespace {

constexpr int chunk = static_cast<int>(quantization_chunk);

template <DynamicMap map>
void encode_each(float const* values, float divisor, std::uint8_t* codes) {
  std::int32_t const* const bucket = host_table(map).bucket;
  int wide[chunk];  // narrowed by a loop of its own, or neither vectorizes
  for (int j = 0; j < chunk; ++j)
    wide[j] = QuantizationTable::code<map>(bucket, values[j], divisor);
  for (int j = 0; j < chunk; ++j) codes[j] = static_cast<std::uint8_t>(wide[j]);
}

#ifdef TESSERA_MAPS_IN_REGISTERS

template <DynamicMap map>
void encode_one(float const* values, int i, float divisor, std::uint8_t* codes) {
  codes[i] = static_cast<std::uint8_t>(
      QuantizationTable::code<map>(host_table(map).bucket, values[i], divisor));
}

constexpr int width = 16;  // floats in a register

/// The magnitudes of a map in registers, and lines from which the rank of a magnitude x follows.
///
/// The map has seven decades, k = 0 to 6, with `count` equal cells from 10^(k - 7) to 10^(k - 6)
/// and a number in the middle of each. Decade k is a line of slope count / (0.9 * 10^(k - 6)) in
/// ranks, a fifth of the slope of the decade below it. The borders between ranks are where lines
/// pass integers but for three: below the first cell of a decade the border is 0.2 cells above the
/// decade's begin, because the cells below are smaller; below the first number, next to 0; above
/// the last number, next to 1. A steeper line through the border replaces the first line below it.
/// Slopes fall as x grows, so the rank is the least of all lines, three of which an octave needs;
/// and the last border's line, where that is greater.
template <DynamicMap map>
struct ChunkTable {
  static constexpr bool is_signed = map == DynamicMap::signed_values;
  static constexpr int ranks = is_signed ? 128 : 256;
  /// Octaves of exponents modulo 32; those of 2^-24 to 1 differ
  static constexpr int octaves = 32;
  static constexpr int fraction_bits = 12;  ///< fraction bits of ranks as integers
  static constexpr double steeper = 1.25, steeper_last = 4.0 / 3.0;

  alignas(64) std::array<float, ranks> number{};
  /// The line of the last decade in an octave is x * slope + own. Through its first border goes
  /// x * slope * steeper + border; the decade below, if a part of the octave is in it, is
  /// x * slope * 5 + below, else infinity. In units of 2^-fraction_bits ranks.
  alignas(64) std::array<float, octaves> slope{}, own{}, border{}, below{};
  float last = 0.0f;  ///< the line of the last border is line * steeper_last + last

  ChunkTable() {
    constexpr int zero = is_signed ? QuantizationTable::zero_of_signed : 0;
    for (std::size_t r = 0; r < number.size(); ++r) number[r] = numbers_of(map)[zero + r];
    for (int exponent = -24; exponent <= 0; ++exponent) add_octave(exponent);
    double const rank_of_last = first_rank(7), line_at_border = rank_of_last - 0.25;
    last = unit(rank_of_last - steeper_last * line_at_border);
  }

 private:
  static double count(int decade) { return std::ldexp(is_signed ? 1.0 : 2.0, decade); }
  static double first_rank(int decade) { return count(decade) - (is_signed ? 0.0 : 1.0); }
  static float unit(double ranks) { return static_cast<float>(std::ldexp(ranks, fraction_bits)); }
  /// The decade with @p x; 0 below the first, 6 above the last.
  static int decade_of(double x) {
    int k = 0;
    while (k < 6 && std::pow(10.0, k - 6) <= x) ++k;
    return k;
  }

  void add_octave(int exponent) {
    auto const at = static_cast<std::size_t>(exponent + 127) % octaves;
    double const begin = std::ldexp(1.0, exponent);
    int const k = decade_of(std::nextafter(2.0 * begin, 0.0)), low = decade_of(begin);
    double const ninth = count(k) / 9.0;
    double const border_of_zero = is_signed ? 0.175 / 0.9 : 0.125 / 0.9;
    double const cells_to_border = ninth + (k == 0 ? border_of_zero : 0.2);
    slope[at] = unit(std::pow(10.0, 6 - k) * count(k) / 0.9);
    own[at] = unit(first_rank(k) - ninth);
    border[at] = unit(first_rank(k) - steeper * cells_to_border);
    below[at] =
        low < k ? unit(first_rank(low) - count(low) / 9.0) : std::numeric_limits<float>::infinity();
  }
};

template <DynamicMap map>
ChunkTable<map> const& chunk_table() {
  static ChunkTable<map> const table;
  return table;
}

/// 16 * count values in registers.
template <int count>
struct Registers {
  __m512 part[count];

  explicit Registers(float const* values) {
    for (int i = 0; i < count; ++i) part[i] = _mm512_load_ps(values + i * width);
  }
  /// values[index] for indices below 16 * count.
  __m512 operator[](__m512i index) const {
    __m512 found[count / 2];
    for (int i = 0; i < count / 2; ++i)
      found[i] = _mm512_permutex2var_ps(part[2 * i], index, part[2 * i + 1]);
    int bit = 32;
    for (int left = count / 2; left > 1; left /= 2, bit *= 2) {
      __mmask16 const upper = _mm512_test_epi32_mask(index, _mm512_set1_epi32(bit));
      for (int i = 0; i < left / 2; ++i)
        found[i] = _mm512_mask_blend_ps(upper, found[2 * i], found[2 * i + 1]);
    }
    return found[0];
  }
};

template <DynamicMap map>
void decode_by_words(std::uint8_t const* codes, float absmax, float* out) {
  auto const& table = chunk_table<map>();
  Registers<ChunkTable<map>::ranks / width> const number(table.number.data());
  __m512 const scale = _mm512_set1_ps(absmax);
  for (int j = 0; j < chunk; j += width) {
    __m512i code =
        _mm512_cvtepu8_epi32(_mm_loadu_si128(reinterpret_cast<__m128i const*>(codes + j)));
    __m512 value;
    if constexpr (map == DynamicMap::unsigned_values) {
      value = number[code];
    } else {
      __m512i const difference =
          _mm512_sub_epi32(code, _mm512_set1_epi32(QuantizationTable::zero_of_signed));
      __m512i const rank = _mm512_abs_epi32(difference);
      value = number[rank];
      __mmask16 const is_one = _mm512_cmpeq_epi32_mask(rank, _mm512_set1_epi32(128));
      value = _mm512_mask_mov_ps(value, is_one, _mm512_set1_ps(1.0f));
      __m512i const sign = _mm512_and_si512(difference, _mm512_set1_epi32(INT32_MIN));
      value = _mm512_castsi512_ps(_mm512_or_si512(_mm512_castps_si512(value), sign));
    }
    _mm512_storeu_ps(out + j, _mm512_mul_ps(value, scale));
  }
}

/// The bytes of the 256 numbers of a map: byte b of each is plane b.
struct NumberPlanes {
  alignas(64) std::array<std::array<std::uint8_t, 256>, 4> plane{};

  explicit NumberPlanes(DynamicMap map) {
    auto const numbers = numbers_of(map);
    for (std::size_t code = 0; code < numbers.size(); ++code)
      for (std::size_t b = 0; b < plane.size(); ++b)
        plane[b][code] =
            static_cast<std::uint8_t>(std::bit_cast<std::uint32_t>(numbers[code]) >> (8 * b));
  }
};

template <DynamicMap map>
NumberPlanes const& number_planes() {
  static NumberPlanes const planes(map);
  return planes;
}

/// Moves the words of 4 bytes so that quarter i of each 128 bits gets those of vector i; its own
/// inverse.
__m512i transposed(__m512i words) {
  return _mm512_permutexvar_epi32(
      _mm512_setr_epi32(0, 4, 8, 12, 1, 5, 9, 13, 2, 6, 10, 14, 3, 7, 11, 15), words);
}

/// Looks up each byte of 64 numbers, then puts the bytes of each number together.
template <DynamicMap map>
__attribute__((target("avx512vbmi"))) void decode_by_bytes(std::uint8_t const* codes, float absmax,
                                                           float* out) {
  auto const& planes = number_planes<map>().plane;
  __m512 const scale = _mm512_set1_ps(absmax);
  for (int j = 0; j < chunk; j += 4 * width) {
    __m512i const code = transposed(_mm512_loadu_si512(codes + j));
    __mmask64 const upper = _mm512_movepi8_mask(code),
                    odd = _mm512_test_epi8_mask(code, _mm512_set1_epi8(64));
    __mmask64 const quarter[] = {~upper & odd, upper & ~odd, upper & odd};
    __m512i byte[4];
    for (std::size_t b = 0; b < 4; ++b) {
      byte[b] = _mm512_permutexvar_epi8(code, _mm512_load_si512(planes[b].data()));
      for (std::size_t q = 0; q < 3; ++q)
        byte[b] = _mm512_mask_permutexvar_epi8(byte[b], quarter[q], code,
                                               _mm512_load_si512(planes[b].data() + 64 * (q + 1)));
    }
    __m512i const low[] = {_mm512_unpacklo_epi8(byte[0], byte[1]),
                           _mm512_unpackhi_epi8(byte[0], byte[1])},
                  high[] = {_mm512_unpacklo_epi8(byte[2], byte[3]),
                            _mm512_unpackhi_epi8(byte[2], byte[3])};
    for (int i = 0; i < 4; ++i) {
      __m512i const number = i % 2 == 0 ? _mm512_unpacklo_epi16(low[i / 2], high[i / 2])
                                        : _mm512_unpackhi_epi16(low[i / 2], high[i / 2]);
      _mm512_storeu_ps(out + j + i * width, _mm512_mul_ps(_mm512_castsi512_ps(number), scale));
    }
  }
}

template <DynamicMap map>
void decode(std::uint8_t const* codes, float absmax, float* out, CodeLookup lookup) {
  static bool const has_vbmi = __builtin_cpu_supports("avx512vbmi");
  if (has_vbmi && lookup == CodeLookup::fastest) return decode_by_bytes<map>(codes, absmax, out);
  decode_by_words<map>(codes, absmax, out);
}

/// Ranks of 16 magnitudes from 2^-24 to 1, and a little above.
template <DynamicMap map>
class Ranks {
  using Table = ChunkTable<map>;

 public:
  explicit Ranks(Table const& table)
      : slope_(table.slope.data()),
        own_(table.own.data()),
        border_(table.border.data()),
        below_(table.below.data()),
        last_(_mm512_set1_ps(table.last)) {}

  /// Ranks in units of 2^-fraction_bits, rounded to nearest. Errors of the lines are below half a
  /// unit, so that ranks are right where the fraction is not 0.
  __m512i operator()(__m512 x) const {
    __m512i const octave = _mm512_srli_epi32(_mm512_castps_si512(x), 23);
    __m512 const rise = _mm512_mul_ps(x, slope_[octave]);
    __m512 line = _mm512_add_ps(rise, own_[octave]);
    line = _mm512_min_ps(line, _mm512_fmadd_ps(rise, steeper_, border_[octave]));
    line = _mm512_min_ps(line, _mm512_fmadd_ps(rise, five_, below_[octave]));
    line = _mm512_max_ps(line, _mm512_fmadd_ps(line, steeper_last_, last_));
    return _mm512_cvtps_epi32(line);
  }

 private:
  Registers<2> slope_, own_, border_, below_;
  __m512 last_;
  __m512 const steeper_ = _mm512_set1_ps(Table::steeper), five_ = _mm512_set1_ps(5.0f);
  __m512 const steeper_last_ = _mm512_set1_ps(Table::steeper_last);
};

/// The lowest bytes of 64 values below 256; quarter i of each 128 bits is of vector i.
__m512i unsigned_bytes(__m512i const (&values)[4]) {
  return _mm512_packus_epi16(_mm512_packus_epi32(values[0], values[1]),
                             _mm512_packus_epi32(values[2], values[3]));
}
/// 64 values in the range of a byte: those outside it get its end.
__m512i signed_bytes(__m512i const (&values)[4]) {
  return _mm512_packs_epi16(_mm512_packs_epi32(values[0], values[1]),
                            _mm512_packs_epi32(values[2], values[3]));
}

/// Codes of ranks, with the sign of @p values.
template <DynamicMap map>
__m512i codes_of(__m512i ranks, __m512i const (&values)[4]) {
  if constexpr (map == DynamicMap::unsigned_values) return ranks;
  __mmask64 const negative = _mm512_movepi8_mask(signed_bytes(values));
  __m512i const zero = _mm512_set1_epi8(QuantizationTable::zero_of_signed);
  __m512i const most = _mm512_min_epu8(ranks, zero);  // the map has no -1
  return _mm512_mask_sub_epi8(_mm512_add_epi8(zero, ranks), negative, zero, most);
}

template <DynamicMap map>
void encode(float const* values, float divisor, std::uint8_t* codes) {
  if (!(divisor > 0x1p-125f && divisor < 0x1p125f)) return encode_each<map>(values, divisor, codes);
  auto const& table = chunk_table<map>();
  Ranks<map> const ranks(table);
  __m512 const inverse = _mm512_set1_ps(1.0f / divisor), first = _mm512_set1_ps(0x1p-24f);
  __m512i const fraction = _mm512_set1_epi32((1 << table.fraction_bits) - 1);
  __mmask16 unclear[chunk / width];
  for (int j = 0; j < chunk; j += 4 * width) {
    __m512i quotient[4], rank[4];
    for (int i = 0; i < 4; ++i) {
      __m512 const x = _mm512_mul_ps(_mm512_loadu_ps(values + j + i * width), inverse);
      constexpr int larger_magnitude = 0b1011;
      __m512i const fine = ranks(_mm512_range_ps(x, first, larger_magnitude));
      unclear[j / width + i] = _mm512_testn_epi32_mask(fine, fraction);
      quotient[i] = _mm512_castps_si512(x);
      rank[i] = _mm512_srli_epi32(fine, table.fraction_bits);
    }
    __m512i const packed = codes_of<map>(unsigned_bytes(rank), quotient);
    _mm512_storeu_si512(codes + j, transposed(packed));
  }
  // after the loop: calls in it would push the constants out of the registers
  for (int j = 0; j < chunk; j += width)
    for (unsigned left = unclear[j / width]; left != 0; left &= left - 1)
      encode_one<map>(values, j + std::countr_zero(left), divisor, codes);
}

#else

template <DynamicMap map>
void decode(std::uint8_t const* codes, float absmax, float* out, CodeLookup) {
  float const* const number = numbers_of(map).data();
  for (int j = 0; j < chunk; ++j) out[j] = number[codes[j]] * absmax;
}

template <DynamicMap map>
void encode(float const* values, float divisor, std::uint8_t* codes) {
  encode_each<map>(values, divisor, codes);
}

#endif

}  // namespace

void decode_chunk(DynamicMap map, std::uint8_t const* codes, float absmax, float* out,
                  CodeLookup lookup) {
  if (map == DynamicMap::signed_values)
    decode<DynamicMap::signed_values>(codes, absmax, out, lookup);
  else
    decode<DynamicMap::unsigned_values>(codes, absmax, out, lookup);
}

void encode_chunk(DynamicMap map, float const* values, float divisor, std::uint8_t* codes) {
  if (map == DynamicMap::signed_values)
    encode<DynamicMap::signed_values>(values, divisor, codes);
  else
    encode<DynamicMap::unsigned_values>(values, divisor, codes);
}

}  // namespace tessera::kernels::detail
