#pragma once
/// Products of bf16 tiles by Intel AMX (TDPBF16PS), which sums in fp32:
///   c[m, n] (+)= a[m, k] b[k, n]
/// Intel SDM, volume 1, chapter 18; Linux, Documentation/arch/x86/xstate.rst, for the permission.

#include <cstdint>

#include "tessera/core/dtype.hpp"

// AMX needs 64-bit mode; the tiles of attention around it need vectors of 512 bits to gain.
#if defined(TESSERA_HAVE_AMX) && defined(__x86_64__) && defined(__linux__) && \
    defined(__AVX512BW__) && defined(__AVX512VL__)
#define TESSERA_AMX_TILES
#endif

namespace tessera::kernels::detail {

/// Whether this process may multiply bf16 by AMX: the processor has it, Linux keeps its registers
/// and grants them (requested in the first call), and this build has the code. Depends on nothing
/// else, so equal runs on equal machines round equally.
bool has_amx_bf16();

/// While one lives has_amx_bf16() is false, for tests of what runs elsewhere.
class WithoutAmx {
 public:
  WithoutAmx();
  ~WithoutAmx();
  WithoutAmx(WithoutAmx const&) = delete;
  WithoutAmx& operator=(WithoutAmx const&) = delete;
};

/// Rows and columns of c in one step, and a step of k.
inline constexpr int amx_block = 32;

/// Rows of bf16 elements.
struct Bf16Rows {
  bfloat16 const* data;
  std::int64_t stride;
};
/// Pairs of rows: word (k / 2, n) holds element (k, n) in its lower half and (k + 1, n) in its
/// upper one, the layout in which AMX reads b.
struct Bf16Pairs {
  std::uint32_t const* data;
  std::int64_t stride;
};
struct FloatRows {
  float* data;
  std::int64_t stride;
};

#ifdef TESSERA_AMX_TILES

/// Tile registers of 16 rows of 64 bytes for this thread, as long as it lives.
class AmxTiles {
 public:
  AmxTiles() {
    struct alignas(64) Config {
      std::uint8_t palette = 1, start_row = 0, reserved[14] = {};
      std::uint16_t bytes_per_row[16] = {64, 64, 64, 64, 64, 64, 64, 64};
      std::uint8_t rows[16] = {16, 16, 16, 16, 16, 16, 16, 16};
    };
    static constexpr Config config;
    asm volatile("ldtilecfg %0" ::"m"(config));
  }
  ~AmxTiles() { asm volatile("tilerelease" ::: "memory"); }
  AmxTiles(AmxTiles const&) = delete;
  AmxTiles& operator=(AmxTiles const&) = delete;
};

#define TESSERA_LOAD_TILE(n, from, stride_in_bytes)            \
  asm volatile("tileloadd (%0,%1,1), %%tmm" #n ::"r"(from),    \
               "r"(static_cast<std::int64_t>(stride_in_bytes)) \
               : "memory")
#define TESSERA_STORE_TILE(n, to, stride_in_bytes)             \
  asm volatile("tilestored %%tmm" #n ", (%0,%1,1)" ::"r"(to),  \
               "r"(static_cast<std::int64_t>(stride_in_bytes)) \
               : "memory")
#define TESSERA_ZERO_TILE(n) asm volatile("tilezero %%tmm" #n ::)
#define TESSERA_MULTIPLY_TILES(c, a, b) \
  asm volatile("tdpbf16ps %%tmm" #b ", %%tmm" #a ", %%tmm" #c ::)

/// 32 rows of c and 32 columns, or 16. @p k  a multiple of 32
template <bool Wide, bool Add>
inline void multiply_amx_block(FloatRows c, Bf16Rows a, Bf16Pairs b, int k) {
  std::int64_t const c_bytes = c.stride * 4, a_bytes = a.stride * 2, b_bytes = b.stride * 4;
  float* const lower = c.data + 16 * c.stride;
  if constexpr (Add) {
    TESSERA_LOAD_TILE(0, c.data, c_bytes);
    TESSERA_LOAD_TILE(2, lower, c_bytes);
    if constexpr (Wide) {
      TESSERA_LOAD_TILE(1, c.data + 16, c_bytes);
      TESSERA_LOAD_TILE(3, lower + 16, c_bytes);
    }
  } else {
    TESSERA_ZERO_TILE(0);
    TESSERA_ZERO_TILE(1);
    TESSERA_ZERO_TILE(2);
    TESSERA_ZERO_TILE(3);
  }
  for (int at = 0; at < k; at += amx_block) {
    bfloat16 const* const left = a.data + at;
    std::uint32_t const* const right = b.data + at / 2 * b.stride;
    TESSERA_LOAD_TILE(6, right, b_bytes);
    TESSERA_LOAD_TILE(4, left, a_bytes);
    TESSERA_MULTIPLY_TILES(0, 4, 6);
    TESSERA_LOAD_TILE(5, left + 16 * a.stride, a_bytes);
    TESSERA_MULTIPLY_TILES(2, 5, 6);
    if constexpr (Wide) {
      TESSERA_LOAD_TILE(7, right + 16, b_bytes);
      TESSERA_MULTIPLY_TILES(1, 4, 7);
      TESSERA_MULTIPLY_TILES(3, 5, 7);
    }
  }
  TESSERA_STORE_TILE(0, c.data, c_bytes);
  TESSERA_STORE_TILE(2, lower, c_bytes);
  if constexpr (Wide) {
    TESSERA_STORE_TILE(1, c.data + 16, c_bytes);
    TESSERA_STORE_TILE(3, lower + 16, c_bytes);
  }
}

#undef TESSERA_LOAD_TILE
#undef TESSERA_STORE_TILE
#undef TESSERA_ZERO_TILE
#undef TESSERA_MULTIPLY_TILES

/// 32 rows of c. @p n  columns, a multiple of 16  @p k  a multiple of 32
template <bool Add>
inline void multiply_amx_rows(FloatRows c, Bf16Rows a, Bf16Pairs b, int n, int k) {
  int j = 0;
  for (; j + amx_block <= n; j += amx_block)
    multiply_amx_block<true, Add>({c.data + j, c.stride}, a, {b.data + j, b.stride}, k);
  if (j < n) multiply_amx_block<false, Add>({c.data + j, c.stride}, a, {b.data + j, b.stride}, k);
}

#endif  // TESSERA_AMX_TILES

}  // namespace tessera::kernels::detail
