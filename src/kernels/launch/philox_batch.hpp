#pragma once
/// Philox4x32-10 for many consecutive counters, in SIMD lanes; the numbers are those of core's
/// Philox. Each counter gives four numbers.

#include <cstdint>

#include "launch/device_code.hpp"
#include "tessera/core/random.hpp"
#include "tessera/core/rounding.hpp"

#if defined(__AVX2__) && !defined(TESSERA_DEVICE_COMPILER)
#include <immintrin.h>
#define TESSERA_WIDE_PHILOX
#endif

namespace tessera::kernels::detail {

// The two variants have names of their own: a build for GPUs has sources of both kinds, and an
// inline function must be the same in all.
#ifdef TESSERA_WIDE_PHILOX
inline namespace wide_philox {

/// One counter per 64-bit lane. The low halves are the generator's state; the 32 x 32 -> 64 bit
/// product ignores the high halves. (Compilers would choose the slower 64 x 64 bit product.)
#if defined(__AVX512F__)
inline constexpr int philox_lanes = 8;
using PhiloxLanes = std::uint64_t __attribute__((vector_size(64)));
inline PhiloxLanes low_product(PhiloxLanes a, PhiloxLanes b) {
  return reinterpret_cast<PhiloxLanes>(
      _mm512_maskz_mul_epu32(0xFF, reinterpret_cast<__m512i>(a), reinterpret_cast<__m512i>(b)));
}
inline PhiloxLanes lane_numbers() { return PhiloxLanes{0, 1, 2, 3, 4, 5, 6, 7}; }
inline PhiloxLanes lower_pairs(PhiloxLanes a, PhiloxLanes b) {
  return __builtin_shufflevector(a, b, 0, 8, 1, 9, 2, 10, 3, 11);
}
inline PhiloxLanes upper_pairs(PhiloxLanes a, PhiloxLanes b) {
  return __builtin_shufflevector(a, b, 4, 12, 5, 13, 6, 14, 7, 15);
}
#else
inline constexpr int philox_lanes = 4;
using PhiloxLanes = std::uint64_t __attribute__((vector_size(32)));
inline PhiloxLanes low_product(PhiloxLanes a, PhiloxLanes b) {
  return reinterpret_cast<PhiloxLanes>(
      _mm256_mul_epu32(reinterpret_cast<__m256i>(a), reinterpret_cast<__m256i>(b)));
}
inline PhiloxLanes lane_numbers() { return PhiloxLanes{0, 1, 2, 3}; }
inline PhiloxLanes lower_pairs(PhiloxLanes a, PhiloxLanes b) {
  return __builtin_shufflevector(a, b, 0, 4, 1, 5);
}
inline PhiloxLanes upper_pairs(PhiloxLanes a, PhiloxLanes b) {
  return __builtin_shufflevector(a, b, 2, 6, 3, 7);
}
#endif

struct PhiloxLaneState {
  PhiloxLanes c0, c1, c2, c3;

  PhiloxLaneState(Philox const& random, std::uint64_t first)
      : c0(lane_numbers() + first),
        c1(c0 >> 32),
        c2(PhiloxLanes{} + random.stream),
        c3(PhiloxLanes{} + (random.stream >> 32)) {}

  void round(std::uint32_t k0, std::uint32_t k1) {
    PhiloxLanes const p0 = low_product(PhiloxLanes{} + 0xD2511F53u, c0),
                      p1 = low_product(PhiloxLanes{} + 0xCD9E8D57u, c2);
    c0 = (p1 >> 32) ^ c1 ^ k0;
    c2 = (p0 >> 32) ^ c3 ^ k1;
    c1 = p1;
    c3 = p0;
  }
  void store(std::uint32_t* bits) const {
    PhiloxLanes const low = (c0 & 0xFFFFFFFFu) | (c1 << 32), high = (c2 & 0xFFFFFFFFu) | (c3 << 32);
    PhiloxLanes const lower = lower_pairs(low, high), upper = upper_pairs(low, high);
    __builtin_memcpy(bits, &lower, sizeof lower);
    __builtin_memcpy(bits + 2 * philox_lanes, &upper, sizeof upper);
  }
};

/// Blocks first .. first + 2 * philox_lanes - 1 to bits[0 .. 8 * philox_lanes): two groups, so that
/// one computes while the other's products are on their way.
inline void philox_group(Philox const& random, std::uint64_t first, std::uint32_t* bits) {
  PhiloxLaneState a(random, first), b(random, first + philox_lanes);
  auto k0 = static_cast<std::uint32_t>(random.seed),
       k1 = static_cast<std::uint32_t>(random.seed >> 32);
  for (int round = 0; round < 10; ++round) {
    a.round(k0, k1);
    b.round(k0, k1);
    k0 += 0x9E3779B9u;
    k1 += 0xBB67AE85u;
  }
  a.store(bits);
  b.store(bits + 4 * philox_lanes);
}
inline constexpr int philox_group_size = 2 * philox_lanes;

#else
inline namespace plain_philox {

inline constexpr int philox_group_size = 1;
TESSERA_FUNCTION inline void philox_group(Philox const& random, std::uint64_t first,
                                          std::uint32_t* bits) {
  Philox::Block const four = random(first);
  for (int k = 0; k < 4; ++k) bits[k] = four.v[k];
}

#endif

/// Array size for @p numbers random numbers from any position, rounded up to full groups.
constexpr int philox_capacity(int numbers) { return round_up(numbers + 3, 4 * philox_group_size); }

/// bits[0 .. 4 * blocks), rounded up to full groups: the numbers of blocks first, first + 1, ...
TESSERA_FUNCTION inline void philox_batch(Philox const& random, std::uint64_t first, int blocks,
                                          std::uint32_t* bits) {
  for (int b = 0; b < blocks; b += philox_group_size)
    philox_group(random, first + static_cast<std::uint64_t>(b), bits + 4 * b);
}

}  // inline namespace
}  // namespace tessera::kernels::detail
