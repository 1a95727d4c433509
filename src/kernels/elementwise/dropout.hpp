#pragma once
/// The factor of each element under a dropout: 0 where it is dropped, 1/(1-p) where it is kept.

#include <cmath>
#include <cstdint>

#include "launch/pack.hpp"
#include "launch/philox_batch.hpp"
#include "tessera/kernels/elementwise/elementwise.hpp"

namespace tessera::kernels::detail {

/// @p drop with the numbers that it has where the kernel runs.
TESSERA_FUNCTION inline Dropout placed(Dropout drop) {
  if (drop.place == nullptr) return drop;
  drop.stream += drop.place->stream;
  drop.first_element += drop.place->first_row * drop.elements_per_row;
  drop.place = nullptr;
  return drop;
}

struct DropoutFactors {
  Dropout drop;
  float keep = 1.0f;

  explicit DropoutFactors(Dropout const& drop)
      : drop(drop),
        keep(drop.p < 1.0f ? 1.0f / (1.0f - drop.p) : 0.0f),
        limit_of_bits(limit_of(drop.p)) {}

  TESSERA_FUNCTION bool active() const { return drop.p > 0.0f; }

  /// out[i] = factor of element begin + i of the tensor, for i in [0, count), count <= N. Equal to
  /// testing random.uniform(first + begin + i) < p one by one: it draws groups of four numbers and
  /// shifts them.
  template <int N>
  TESSERA_FUNCTION void fill(std::uint64_t begin, int count, float (&out)[N]) const {
    std::uint32_t bits[philox_capacity(N)];
    Numbers const numbers = numbers_from(begin);
    int const shift = numbers.shift;
    philox_batch(numbers.random, numbers.block, (shift + count + 3) >> 2, bits);
    float const limit = drop.p,
                kept = keep;  // a member read under a condition would keep the loop scalar
#pragma omp simd
    for (int i = 0; i < count; ++i) {
      float const uniform =
          static_cast<float>(static_cast<std::int32_t>(bits[shift + i] >> 8)) * 0x1.0p-24f;
      out[i] = uniform < limit ? 0.0f : kept;
    }
  }

  /// Returns the factor of one element, as fill() does. There is no variable array index, which
  /// device code would keep in local memory.
  TESSERA_FUNCTION float factor(std::uint64_t i) const {
    Numbers const numbers = numbers_from(i);
    Philox::Block const four = numbers.random(numbers.block);
    int const at = numbers.shift;
    std::uint32_t const lower = at == 0 ? four.v[0] : four.v[1],
                        upper = at == 2 ? four.v[2] : four.v[3];
    return factor_of(at < 2 ? lower : upper);
  }
  /// Fills the factors of N elements, as fill() does. N is a multiple of 4.
  template <int N>
  TESSERA_FUNCTION void pack(std::uint64_t begin, float (&out)[N]) const {
    Numbers const numbers = numbers_from(begin);
    int const shift = numbers.shift;
    std::uint32_t bits[N + 4] = {};
    TESSERA_UNROLL
    for (int b = 0; b < N / 4; ++b) numbers.draw(b, bits + 4 * b);
    if (shift != 0) {  // rare: the rows of most models begin at multiples of 4
      numbers.draw(N / 4, bits + N);
      TESSERA_UNROLL
      for (int i = 0; i < N; ++i)
        bits[i] = shift == 1 ? bits[i + 1] : shift == 2 ? bits[i + 2] : bits[i + 3];
    }
    TESSERA_UNROLL
    for (int i = 0; i < N; ++i) out[i] = factor_of(bits[i]);
  }

 private:
  /// The random numbers from an element on: the first is number `shift` of `block`.
  struct Numbers {
    Philox random;
    std::uint64_t block;
    int shift;

    TESSERA_FUNCTION void draw(int further, std::uint32_t* bits) const {
      Philox::Block const four = random(block + static_cast<std::uint64_t>(further));
      for (int k = 0; k < 4; ++k) bits[k] = four.v[k];
    }
  };
  TESSERA_FUNCTION Numbers numbers_from(std::uint64_t element) const {
    Dropout const here = placed(drop);
    std::uint64_t const at = here.first_element + element;
    return {{here.seed, here.stream}, at >> 2, static_cast<int>(at & 3)};
  }
  TESSERA_FUNCTION float factor_of(std::uint32_t random_bits) const {
    return random_bits < limit_of_bits ? 0.0f : keep;
  }

  static std::uint32_t limit_of(float p) {
    return p < 1.0f ? static_cast<std::uint32_t>(std::ceil(p * 0x1.0p+24f)) << 8 : 0u;
  }

  /// Limit as an integer: with k = bits >> 8 the uniform number is k 2^-24, below p if k < L =
  /// ceil(2^24 p), if bits < 2^8 L. (With p = 1 `keep` is 0 whatever the limit.)
  std::uint32_t limit_of_bits;
};

/// Elements whose factors are drawn per call.
inline constexpr int dropout_chunk = 256;

}  // namespace tessera::kernels::detail
