#pragma once
/// The AdamW update of one element, and how a tile of a segment is updated with it.

#include <Kokkos_Core.hpp>
#include <cmath>
#include <cstdint>
#include <type_traits>

#include "detail/prefetch.hpp"
#include "tessera/core/dtype.hpp"
#include "tessera/kernels/adamw.hpp"

namespace tessera::kernels::detail {

/// What a step multiplies with: computed in double, rounded once to fp32.
struct AdamWCoefficients {
  float gradient_factor;
  float beta1, one_minus_beta1;
  float beta2, one_minus_beta2;
  float inverse_sqrt_bias_correction2;  ///< 1 / sqrt(1 - beta2^t)
  float epsilon;
};
/// The same of one segment.
struct AdamWRates {
  float keep;       ///< 1 - lr * weight_decay; 1 with L2 decay
  float l2;         ///< weight_decay with L2 decay; else 0
  float step_size;  ///< lr / (1 - beta1^t)
};

/// a * b + c rounded once where the processor can. Said explicitly, so that an element's result does not depend on whether the
/// compiler put it into a vector loop or its remainder.
KOKKOS_INLINE_FUNCTION float multiply_add(float a, float b, float c) {
#if defined(__FMA__) || defined(__CUDA_ARCH__) || defined(__ARM_FEATURE_FMA)
  return std::fma(a, b, c);
#else
  return a * b + c;
#endif
}

/// Updates p, m and v with gradient g.
KOKKOS_INLINE_FUNCTION void adamw_element(AdamWCoefficients const& c, AdamWRates const& r, float g, float& p, float& m, float& v) {
  g = g * c.gradient_factor;
  g = multiply_add(r.l2, p, g);
  p = p * r.keep;
  m = multiply_add(c.one_minus_beta1, g - m, m);
  v = multiply_add(c.one_minus_beta2 * g, g, v * c.beta2);
  float const denominator = multiply_add(std::sqrt(v), c.inverse_sqrt_bias_correction2, c.epsilon);
  p = multiply_add(-r.step_size, m / denominator, p);
}

/// A segment with types erased to pointers, small enough that a launch carries a batch of them by value.
struct AdamWRun {
  float* master;
  float* exp_avg;
  float* exp_avg_sq;
  void const* gradient;
  void* weights_out;
  std::int64_t numel;
  std::int64_t first_tile;  ///< of this run, in the launch
  AdamWRates rates;
};

/// rule(tile): tiles are dealt to the runs in order. G: dtype of the gradient; W: of weights_out, void if there is none.
template <class G, class W>
struct AdamWTiles {
  static constexpr int max_runs = 40;  ///< keeps the functor below the 4 KiB of a device kernel's parameters
  AdamWCoefficients coefficients;
  AdamWControl const* control;  ///< null: the coefficients say all
  std::int64_t tile;  ///< elements
  int runs;
  AdamWRun run[max_runs];

  KOKKOS_FUNCTION void operator()(std::int64_t index) const {
    AdamWCoefficients c = coefficients;
    if (control != nullptr) {
      if (control->skip != 0) return;
      c.gradient_factor = static_cast<float>(control->gradient_factor);
    }
    int low = 0, high = runs;  // the last run that starts at or before this tile
    while (high - low > 1) {
      int const middle = (low + high) / 2;
      (run[middle].first_tile <= index ? low : high) = middle;
    }
    AdamWRun const& r = run[low];
    std::int64_t const begin = (index - r.first_tile) * tile;
    std::int64_t const count = begin + tile < r.numel ? tile : r.numel - begin;
    update(c, r.rates, count, r.master + begin, r.exp_avg + begin, r.exp_avg_sq + begin,
           static_cast<G const*>(r.gradient) + begin, static_cast<W*>(r.weights_out), begin);
  }

  /// Prefetching a few cache lines ahead on every array makes the update a tenth faster than the processor's own prefetchers, which
  /// stop at page borders (docs/performance.md).
  static KOKKOS_FUNCTION void update(AdamWCoefficients const& c, AdamWRates const& r, std::int64_t count, float* p, float* m, float* v,
                                     G const* g, W* weights_out, std::int64_t begin) {
    std::int64_t at = 0;
    for (; at + chunk <= count; at += chunk) {
      prefetch<chunk>(p + at + ahead);
      prefetch<chunk>(m + at + ahead);
      prefetch<chunk>(v + at + ahead);
      prefetch<chunk>(g + at + ahead);
      if constexpr (!std::is_void_v<W>) prefetch<chunk>(weights_out + begin + at + ahead);
      update_chunk(c, r, chunk, p + at, m + at, v + at, g + at, weights_out, begin + at);
    }
    update_chunk(c, r, count - at, p + at, m + at, v + at, g + at, weights_out, begin + at);
  }

 private:
  static constexpr std::int64_t chunk = 64, ahead = 512;

  /// Coefficients by value and pointers restrict: the loop then runs in registers and vectorises.
  static KOKKOS_FUNCTION void update_chunk(AdamWCoefficients const c, AdamWRates const r, std::int64_t count, float* __restrict p,
                                           float* __restrict m, float* __restrict v, G const* __restrict g, W* weights_out,
                                           std::int64_t begin) {
    if constexpr (std::is_void_v<W>) {
      for (std::int64_t i = 0; i < count; ++i) adamw_element(c, r, static_cast<float>(g[i]), p[i], m[i], v[i]);
    } else {
      W* const __restrict w = weights_out + begin;
      for (std::int64_t i = 0; i < count; ++i) {
        adamw_element(c, r, static_cast<float>(g[i]), p[i], m[i], v[i]);
        w[i] = W(p[i]);
      }
    }
  }
};

}  // namespace tessera::kernels::detail
