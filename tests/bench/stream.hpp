#pragma once
/// STREAM's triad and copy with stores past the caches: what memory gives.  McCalpin, "STREAM".

#include <cstdint>

#if defined(__AVX512F__) || defined(__AVX__)
#include <immintrin.h>
#endif

namespace tessera::bench {

/// Stores past the caches where the processor can. @pre 64-byte aligned
inline void stream_16(float* to, float const* values) {
#if defined(__AVX512F__)
  _mm512_stream_ps(to, _mm512_load_ps(values));
#elif defined(__AVX__)
  _mm256_stream_ps(to, _mm256_load_ps(values));
  _mm256_stream_ps(to + 8, _mm256_load_ps(values + 8));
#else
  for (int j = 0; j < 16; ++j) to[j] = values[j];
#endif
}

constexpr std::int64_t tile = 16384;

/// a = b + 3 c
struct Triad {
  float* a;
  float const *b, *c;
  void operator()(std::int64_t index) const {
    for (std::int64_t i = index * tile; i < (index + 1) * tile; i += 16) {
      alignas(64) float v[16];
      for (int j = 0; j < 16; ++j) v[j] = b[i + j] + 3.0f * c[i + j];
      stream_16(a + i, v);
    }
  }
};
/// a = b
struct Copy {
  float* a;
  float const* b;
  void operator()(std::int64_t index) const {
    for (std::int64_t i = index * tile; i < (index + 1) * tile; i += 16) stream_16(a + i, b + i);
  }
};

template <class Rule>
void over_tiles(std::int64_t n, Rule const& rule) {
#pragma omp parallel for schedule(static)
  for (std::int64_t index = 0; index < n / tile; ++index) rule(index);
}

}  // namespace tessera::bench
