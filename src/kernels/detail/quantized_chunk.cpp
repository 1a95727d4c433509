#include "detail/quantized_chunk.hpp"

#include "detail/quantization_table.hpp"

#if defined(__AVX512F__)
#if defined(__GNUC__) && !defined(__clang__)
#pragma GCC diagnostic ignored "-Wuninitialized"  // of GCC 12's own header: its bug 105593
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

#if defined(__AVX512F__)

template <DynamicMap map>
void encode_one(float const* values, int i, float divisor, std::uint8_t* codes) {
  codes[i] = static_cast<std::uint8_t>(
      QuantizationTable::code<map>(host_table(map).bucket, values[i], divisor));
}

constexpr int lanes = 16;

/// The magnitudes of a map in registers, and how the rank of a magnitude x is computed.
///
/// The map has seven decades, k = 0 to 6, with `count` equal cells from 10^(k - 7) to 10^(k - 6)
/// and a number in the middle of each. In cells of its decade x is at u = scale x - count / 9, and
/// the borders between ranks are the borders of cells but for three: below the first cell of a
/// decade, where the border is 0.2 cells too high because the cells of the previous decade are
/// smaller; below the first number, next to 0; above the last number, next to 1. The cells next to
/// these are stretched. Where x is closer to a border than rounding errors are, the table decides.
template <DynamicMap map>
struct ChunkTable {
  static constexpr bool is_signed = map == DynamicMap::signed_values;
  static constexpr int ranks = is_signed ? 128 : 256;
  static constexpr int first_exponent = QuantizationTable::first_key >> 7;
  static constexpr int first_count = is_signed ? 1 : 2;  ///< doubles in each decade
  static constexpr float last_count = 64.0f * first_count;
  /// Where cell 0 of a decade begins, and of decade 0, in cells.
  static constexpr float first_border = 0.2f;
  static constexpr float border_of_zero = is_signed ? 0.175f / 0.9f : 0.125f / 0.9f;
  /// Errors of u are below 1e-4: fp32 has a spacing of 1.5e-5 for ranks from 128 on, and a product
  /// with the inverse of the divisor is up to 2 such spacings off.
  static constexpr float margin = 0x1p-12f;

  alignas(64) std::array<float, ranks> number{};
  /// Of the octaves from 2^-24 to 1: the power of ten in it, or infinity, and the decade below it.
  alignas(64) std::array<float, 32> power_of_ten{};
  alignas(64) std::array<std::int32_t, 32> decade{};
  alignas(64) std::array<float, 16> scale{}, ninth{};  ///< of each decade; ninth: of count

  ChunkTable() {
    constexpr int zero = is_signed ? QuantizationTable::zero_of_signed : 0;
    for (std::size_t r = 0; r < number.size(); ++r) number[r] = numbers_of(map)[zero + r];
    for (std::size_t e = 0; e < power_of_ten.size(); ++e) {
      double const octave = std::ldexp(1.0, static_cast<int>(e) + first_exponent - 127);
      power_of_ten[e] = std::numeric_limits<float>::infinity();
      for (int k = 1; k <= 6; ++k) {
        double const power = std::pow(10.0, k - 7);
        if (power <= octave) decade[e] = k;
        if (power > octave && power < 2.0 * octave) power_of_ten[e] = static_cast<float>(power);
      }
    }
    for (std::size_t k = 0; k < 7; ++k) {
      double const count = first_count << k;
      scale[k] = static_cast<float>(std::pow(10.0, 6.0 - static_cast<double>(k)) * count / 0.9);
      ninth[k] = static_cast<float>(count / 9.0);
    }
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
    for (int i = 0; i < count; ++i) part[i] = _mm512_load_ps(values + i * lanes);
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
void decode(std::uint8_t const* codes, float absmax, float* out) {
  auto const& table = chunk_table<map>();
  Registers<ChunkTable<map>::ranks / lanes> const number(table.number.data());
  __m512 const scale = _mm512_set1_ps(absmax);
  for (int j = 0; j < chunk; j += lanes) {
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

/// Ranks of 16 magnitudes from 2^-24 to 1.
template <DynamicMap map>
class Ranks {
  using Table = ChunkTable<map>;

 public:
  explicit Ranks(Table const& table)
      : power_of_ten_(table.power_of_ten.data()),
        decade_low_(_mm512_load_si512(table.decade.data())),
        decade_high_(_mm512_load_si512(table.decade.data() + lanes)),
        scale_(_mm512_load_ps(table.scale.data())),
        ninth_(_mm512_load_ps(table.ninth.data())) {}

  /// @param unclear lanes in which the rank may be one too high or too low
  __m512i operator()(__m512i magnitude, __mmask16& unclear) const {
    __m512 const x = _mm512_castsi512_ps(magnitude);
    __m512i const octave = _mm512_sub_epi32(_mm512_srli_epi32(magnitude, 23),
                                            _mm512_set1_epi32(Table::first_exponent));
    __m512i decade = _mm512_permutex2var_epi32(decade_low_, octave, decade_high_);
    __mmask16 const is_above = _mm512_cmp_ps_mask(x, power_of_ten_[octave], _CMP_GE_OQ);
    decade = _mm512_mask_add_epi32(decade, is_above, decade, _mm512_set1_epi32(1));
    __m512 const ninth = _mm512_permutexvar_ps(decade, ninth_);
    __m512 u = _mm512_fmsub_ps(x, _mm512_permutexvar_ps(decade, scale_), ninth);
    constexpr float slope = 1.0f / (1.0f - Table::first_border),
                    slope_at_zero = 1.0f / (1.0f - Table::border_of_zero);
    __mmask16 const is_first = _mm512_testn_epi32_mask(decade, decade);
    __m512 const stretch =
        _mm512_mask_mov_ps(_mm512_set1_ps(slope), is_first, _mm512_set1_ps(slope_at_zero));
    // 1 + stretch (u - 1) below the border of the first cell
    __m512 const one = _mm512_set1_ps(1.0f);
    u = _mm512_min_ps(u, _mm512_fmadd_ps(_mm512_sub_ps(u, one), stretch, one));
    u = _mm512_max_ps(u, _mm512_fmadd_ps(u, _mm512_set1_ps(4.0f / 3.0f),
                                         _mm512_set1_ps((1.0f - Table::last_count) / 3.0f)));
    // the decade begins with rank count, or count - 1
    __m512 rank = _mm512_fmadd_ps(ninth, _mm512_set1_ps(9.0f), u);
    if constexpr (!Table::is_signed) rank = _mm512_sub_ps(rank, one);
    __m512 const border = _mm512_roundscale_ps(rank, _MM_FROUND_TO_NEAREST_INT);
    unclear = _mm512_cmp_ps_mask(_mm512_abs_ps(_mm512_sub_ps(rank, border)),
                                 _mm512_set1_ps(Table::margin), _CMP_LT_OQ);
    return _mm512_cvttps_epi32(rank);
  }

 private:
  Registers<2> power_of_ten_;
  __m512i decade_low_, decade_high_;
  __m512 scale_, ninth_;
};

template <DynamicMap map>
void encode(float const* values, float divisor, std::uint8_t* codes) {
  if (!(divisor > 0x1p-125f && divisor < 0x1p125f)) return encode_each<map>(values, divisor, codes);
  Ranks<map> const ranks(chunk_table<map>());
  __m512 const inverse = _mm512_set1_ps(1.0f / divisor);
  __m512i const first = _mm512_set1_epi32(QuantizationTable::first_key << 16),
                last = _mm512_set1_epi32(QuantizationTable::last_key << 16);
  __mmask16 unclear[chunk / lanes];
  for (int j = 0; j < chunk; j += lanes) {
    __m512i const bits = _mm512_castps_si512(_mm512_mul_ps(_mm512_loadu_ps(values + j), inverse));
    __m512i magnitude = _mm512_and_si512(bits, _mm512_set1_epi32(INT32_MAX));
    magnitude = _mm512_max_epi32(_mm512_min_epi32(magnitude, last), first);
    __m512i rank = ranks(magnitude, unclear[j / lanes]);
    if constexpr (map == DynamicMap::signed_values) {
      __m512i const sign = _mm512_srai_epi32(bits, 31),
                    zero = _mm512_set1_epi32(QuantizationTable::zero_of_signed);
      rank = _mm512_min_epi32(
          rank, _mm512_add_epi32(sign, _mm512_set1_epi32(QuantizationTable::zero_of_signed + 1)));
      rank = _mm512_add_epi32(zero, _mm512_sub_epi32(_mm512_xor_si512(rank, sign), sign));
    }
    _mm_storeu_si128(reinterpret_cast<__m128i*>(codes + j), _mm512_cvtepi32_epi8(rank));
  }
  // after the loop: calls in it would push the constants out of the registers
  for (int j = 0; j < chunk; j += lanes)
    for (unsigned left = unclear[j / lanes]; left != 0; left &= left - 1)
      encode_one<map>(values, j + std::countr_zero(left), divisor, codes);
}

#else

template <DynamicMap map>
void decode(std::uint8_t const* codes, float absmax, float* out) {
  float const* const number = numbers_of(map).data();
  for (int j = 0; j < chunk; ++j) out[j] = number[codes[j]] * absmax;
}

template <DynamicMap map>
void encode(float const* values, float divisor, std::uint8_t* codes) {
  encode_each<map>(values, divisor, codes);
}

#endif

}  // namespace

void decode_chunk(DynamicMap map, std::uint8_t const* codes, float absmax, float* out) {
  if (map == DynamicMap::signed_values)
    decode<DynamicMap::signed_values>(codes, absmax, out);
  else
    decode<DynamicMap::unsigned_values>(codes, absmax, out);
}

void encode_chunk(DynamicMap map, float const* values, float divisor, std::uint8_t* codes) {
  if (map == DynamicMap::signed_values)
    encode<DynamicMap::signed_values>(values, divisor, codes);
  else
    encode<DynamicMap::unsigned_values>(values, divisor, codes);
}

}  // namespace tessera::kernels::detail
