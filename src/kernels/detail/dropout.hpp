#pragma once
/// The factor of each element under a dropout: 0 where it is dropped, 1/(1-p) where it is kept.

#include <cstdint>

#include "detail/philox_blocks.hpp"
#include "tessera/kernels/elementwise.hpp"

namespace tessera::kernels::detail {

struct DropoutFactors {
  Philox random;
  std::uint64_t first = 0;
  float p = 0.0f;
  float keep = 1.0f;

  explicit DropoutFactors(Dropout const& drop)
      : random{drop.seed, drop.stream}, first(drop.first_element), p(drop.p), keep(drop.p < 1.0f ? 1.0f / (1.0f - drop.p) : 0.0f) {}

  TESSERA_FUNCTION bool active() const { return p > 0.0f; }

  /// out[i] = factor of element begin + i of the tensor, for i in [0, count), count <= N. Equal to testing
  /// random.uniform(first + begin + i) < p one by one: whole blocks of four numbers are drawn, then shifted into place.
  template <int N>
  TESSERA_FUNCTION void fill(std::uint64_t begin, int count, float (&out)[N]) const {
    std::uint32_t bits[philox_room(N)];
    std::uint64_t const block = (first + begin) >> 2;
    int const shift = static_cast<int>((first + begin) & 3);
    philox_blocks(random, block, (shift + count + 3) >> 2, bits);
    float const limit = p, kept = keep;  // a member read under a condition would keep the loop scalar
#pragma omp simd
    for (int i = 0; i < count; ++i) {
      float const uniform = static_cast<float>(static_cast<std::int32_t>(bits[shift + i] >> 8)) * 0x1.0p-24f;
      out[i] = uniform < limit ? 0.0f : kept;
    }
  }
};

/// Elements whose factors are drawn at a time.
inline constexpr int dropout_chunk = 256;

}  // namespace tessera::kernels::detail
