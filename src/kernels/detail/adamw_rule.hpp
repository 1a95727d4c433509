#pragma once
/// The AdamW update of one element, and how a host thread and a device's warp update pieces of
/// segments with it.

#include <Kokkos_Core.hpp>
#include <bit>
#include <cmath>
#include <cstddef>
#include <cstdint>
#include <type_traits>

#include "detail/pack.hpp"
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

/// a * b + c rounded once where the processor can. Said explicitly, so that an element's result
/// does not depend on whether the compiler put it into a vector loop or its remainder.
KOKKOS_INLINE_FUNCTION float multiply_add(float a, float b, float c) {
#if defined(__FMA__) || defined(__CUDA_ARCH__) || defined(__ARM_FEATURE_FMA)
  return std::fma(a, b, c);
#else
  return a * b + c;
#endif
}

/// Updates p, m and v with gradient g.
KOKKOS_INLINE_FUNCTION void adamw_element(AdamWCoefficients const& c, AdamWRates const& r, float g,
                                          float& p, float& m, float& v) {
  g = g * c.gradient_factor;
  g = multiply_add(r.l2, p, g);
  p = p * r.keep;
  m = multiply_add(c.one_minus_beta1, g - m, m);
  v = multiply_add(c.one_minus_beta2 * g, g, v * c.beta2);
  float const denominator = multiply_add(std::sqrt(v), c.inverse_sqrt_bias_correction2, c.epsilon);
  p = multiply_add(-r.step_size, m / denominator, p);
}

/// A segment with types erased to pointers, small enough that a launch carries a batch of them by
/// value.
struct AdamWRun {
  float* master;
  float* exp_avg;
  float* exp_avg_sq;
  void const* gradient;
  void* weights_out;
  std::int64_t numel;
  std::int64_t first_tile;  ///< of this run, in the launch
  AdamWRates rates;
  std::int32_t shift;  ///< elements that are missing from the first pack, on a device; unaligned
                       ///< when no packs fit all arrays
  static constexpr std::int32_t unaligned = -1;
};

/// What the kernels of both sides carry. G: dtype of the gradient; W: of weights_out, void if there
/// is none.
template <class G, class W>
struct AdamWBatch {
  static constexpr int max_runs =
      40;  ///< keeps the functor below the 4 KiB of a device kernel's parameters
  AdamWCoefficients coefficients;
  StepControl const* control;  ///< null: the coefficients say all
  int runs;
  AdamWRun run[max_runs];

  /// Tiles are dealt to the runs in order: the last run that starts at or before this one.
  KOKKOS_FUNCTION AdamWRun const& run_of(std::int64_t tile) const {
    int low = 0, high = runs;
    while (high - low > 1) {
      int const middle = (low + high) / 2;
      (run[middle].first_tile <= tile ? low : high) = middle;
    }
    return run[low];
  }
  /// False when the step is to be skipped. The control is read as one pack, or else a device would
  /// first wait for `skip`, then for the factor.
  KOKKOS_FUNCTION bool decide(AdamWCoefficients& c) const {
    c = coefficients;
    if (control == nullptr) return true;
    Pack<float, 4> said;
    said.read(reinterpret_cast<float const*>(control));
    c.gradient_factor =
        static_cast<float>(std::bit_cast<double>(said.word[0] | std::uint64_t{said.word[1]} << 32));
    return said.word[2] == 0;
  }
  static_assert(sizeof(StepControl) == 16 && offsetof(StepControl, skip) == 8 &&
                std::endian::native == std::endian::little);
};

/// rule(tile) on the host: a tile is one thread's.
template <class G, class W>
struct AdamWTiles {
  AdamWBatch<G, W> batch;
  std::int64_t tile;  ///< elements

  KOKKOS_FUNCTION void operator()(std::int64_t index) const {
    AdamWCoefficients c;
    if (!batch.decide(c)) return;
    AdamWRun const& r = batch.run_of(index);
    std::int64_t const begin = (index - r.first_tile) * tile;
    std::int64_t const count = begin + tile < r.numel ? tile : r.numel - begin;
    update(c, r.rates, count, r.master + begin, r.exp_avg + begin, r.exp_avg_sq + begin,
           static_cast<G const*>(r.gradient) + begin, static_cast<W*>(r.weights_out), begin);
  }

  /// Prefetching a few cache lines ahead on every array makes the update a tenth faster than the
  /// processor's own prefetchers, which stop at page borders (docs/reference/performance.md).
  static KOKKOS_FUNCTION void update(AdamWCoefficients const& c, AdamWRates const& r,
                                     std::int64_t count, float* p, float* m, float* v, G const* g,
                                     W* weights_out, std::int64_t begin) {
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
  static KOKKOS_FUNCTION void update_chunk(AdamWCoefficients const c, AdamWRates const r,
                                           std::int64_t count, float* __restrict p,
                                           float* __restrict m, float* __restrict v,
                                           G const* __restrict g, W* weights_out,
                                           std::int64_t begin) {
    if constexpr (std::is_void_v<W>) {
      for (std::int64_t i = 0; i < count; ++i)
        adamw_element(c, r, static_cast<float>(g[i]), p[i], m[i], v[i]);
    } else {
      W* const __restrict w = weights_out + begin;
      for (std::int64_t i = 0; i < count; ++i) {
        adamw_element(c, r, static_cast<float>(g[i]), p[i], m[i], v[i]);
        w[i] = W(p[i]);
      }
    }
  }
};

/// rule(thread) on a device: a warp takes a tile of a run, a lane `packs` packs of four elements of
/// it, 16 bytes of each fp32 array and 8 of 16-bit ones. All are read before the first is computed:
/// 112 to 128 bytes of a lane are then under way. Tiles at the ends of a run, and runs whose arrays
/// do not share their packs' borders, go element by element, neighbouring lanes at neighbouring
/// elements.
template <class G, class W>
struct AdamWPacks {
  static constexpr int pack = 4, packs = 2;
  static constexpr std::int64_t tile = std::int64_t{warp_size} * pack * packs;
  AdamWBatch<G, W> batch;

  static std::int32_t shift_of(AdamWRun const& r) {
    int const shift = elements_past_boundary(r.master, pack);
    bool const shared = shares_boundary(r.exp_avg, pack, shift) &&
                        shares_boundary(r.exp_avg_sq, pack, shift) &&
                        shares_boundary(static_cast<G const*>(r.gradient), pack, shift) &&
                        shares_boundary(static_cast<W const*>(r.weights_out), pack, shift);
    return shared ? shift : AdamWRun::unaligned;
  }
  static std::int64_t tiles_of(AdamWRun const& r) {
    return (r.numel + (r.shift > 0 ? r.shift : 0) + tile - 1) / tile;
  }

  KOKKOS_FUNCTION void operator()(std::int64_t thread) const {
    std::int64_t const index = thread / warp_size, lane = thread % warp_size;
    AdamWRun const& r = batch.run_of(index);
    std::int64_t const begin = (index - r.first_tile) * tile - (r.shift > 0 ? r.shift : 0);
    if (r.shift >= 0 && begin >= 0 && begin + tile <= r.numel)
      return whole_packs(r, begin + lane * pack);
    AdamWCoefficients c;
    if (!batch.decide(c)) return;
    for (std::int64_t i = begin + lane; i < begin + tile && i < r.numel; i += warp_size)
      if (i >= 0) one_element(c, r, i);
  }

 private:
  KOKKOS_FUNCTION void whole_packs(AdamWRun const& r, std::int64_t first) const {
    constexpr std::int64_t stride = std::int64_t{warp_size} * pack;
    Pack<float, pack> p[packs], m[packs], v[packs];
    Pack<G, pack> g[packs];
    TESSERA_UNROLL
    for (int k = 0; k < packs; ++k) {
      std::int64_t const at = first + k * stride;
      g[k].read(static_cast<G const*>(r.gradient) + at);
      p[k].read(r.master + at);
      m[k].read(r.exp_avg + at);
      v[k].read(r.exp_avg_sq + at);
    }
    AdamWCoefficients c;  // decided after the reads have begun
    if (!batch.decide(c)) return;
    TESSERA_UNROLL
    for (int k = 0; k < packs; ++k) update_pack(c, r, first + k * stride, g[k], p[k], m[k], v[k]);
  }
  static KOKKOS_FUNCTION void update_pack(AdamWCoefficients const& c, AdamWRun const& r,
                                          std::int64_t at, Pack<G, pack> const& g,
                                          Pack<float, pack>& p, Pack<float, pack>& m,
                                          Pack<float, pack>& v) {
    Pack<W, pack> w;
    TESSERA_UNROLL
    for (int i = 0; i < pack; ++i) {
      float pi = p.get(i), mi = m.get(i), vi = v.get(i);
      adamw_element(c, r.rates, g.get(i), pi, mi, vi);
      p.set(i, pi);
      m.set(i, mi);
      v.set(i, vi);
      if constexpr (!std::is_void_v<W>) w.set(i, pi);
    }
    p.write(r.master + at);
    m.write(r.exp_avg + at);
    v.write(r.exp_avg_sq + at);
    if constexpr (!std::is_void_v<W>) w.write(static_cast<W*>(r.weights_out) + at);
  }
  static KOKKOS_FUNCTION void one_element(AdamWCoefficients const& c, AdamWRun const& r,
                                          std::int64_t i) {
    float p = r.master[i], m = r.exp_avg[i], v = r.exp_avg_sq[i];
    adamw_element(c, r.rates, load(static_cast<G const*>(r.gradient)[i]), p, m, v);
    r.master[i] = p;
    r.exp_avg[i] = m;
    r.exp_avg_sq[i] = v;
    if constexpr (!std::is_void_v<W>) store(static_cast<W*>(r.weights_out)[i], p);
  }
};

}  // namespace tessera::kernels::detail
