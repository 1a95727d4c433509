#pragma once
/// The update of one element-wise optimizer: a rule updates one element, and this header applies it
/// to the pack of a device's thread or to one element.
///
/// A rule has
///   struct Coefficients   values of a step, with a member `gradient_factor`
///   struct Rates          values of a segment
///   static constexpr int states      fp32 values that an element keeps next to its master weight
///   static void element(Coefficients, Rates, float gradient, float& p, float&... states)
/// and, where rates depend on memory that earlier kernels have written,
///   static Rates resolved(Coefficients, Rates)

#include <Kokkos_Core.hpp>
#include <bit>
#include <cmath>
#include <cstddef>
#include <cstdint>
#include <type_traits>
#include <utility>
#include <vector>

#include "launch/device_code.hpp"
#include "launch/pack.hpp"
#include "tessera/core/dtype.hpp"
#include "tessera/kernels/elementwise/gradient_statistics.hpp"

namespace tessera::kernels::detail {

/// a * b + c rounded once where the processor can. Said explicitly, so that an element's result
/// does not depend on whether the compiler put it into a vector loop or its remainder.
KOKKOS_INLINE_FUNCTION float multiply_add(float a, float b, float c) {
#if defined(__FMA__) || defined(TESSERA_DEVICE_CODE) || defined(__ARM_FEATURE_FMA)
  return std::fma(a, b, c);
#else
  return a * b + c;
#endif
}

/// A segment with types erased to pointers, small enough that a launch carries a batch of them by
/// value.
template <class Rule>
struct UpdateRun {
  void* master;
  void* states[Rule::states > 0 ? Rule::states : 1];
  void const* gradient;
  void* weights_out;  ///< 16-bit weights written from the updated master; null: none
  std::int64_t numel;
  typename Rule::Rates rates;
  std::int64_t first_tile = 0;  ///< first tile of this run, in the launch
  std::int32_t shift = 0;       ///< elements that are missing from the first pack, on a device;
                                ///< unaligned when no packs fit all arrays
  static constexpr std::int32_t unaligned = -1;

  /// Weights and states as fp32 values.
  KOKKOS_FUNCTION float* weights() const { return static_cast<float*>(master); }
  KOKKOS_FUNCTION float* state(std::size_t j) const { return static_cast<float*>(states[j]); }
};

/// Returns the run that has @p tile. Runs own consecutive tiles.
template <class Run>
KOKKOS_INLINE_FUNCTION Run const& run_with(Run const* run, int runs, std::int64_t tile) {
  int low = 0, high = runs;
  while (high - low > 1) {
    int const middle = (low + high) / 2;
    (run[middle].first_tile <= tile ? low : high) = middle;
  }
  return run[low];
}

/// Hands the runs with elements to @p launch(batch, tiles), in as few copies of @p batch as hold
/// them. @p tiles_of(run) sets what the launch needs to know of a run, and gives its tiles.
template <class Batch, class Run, class TilesOf, class Launch>
void for_batches(Batch batch, std::vector<Run> const& runs, TilesOf const& tiles_of,
                 Launch const& launch) {
  std::int64_t tiles = 0;
  auto const flush = [&] {
    if (batch.runs > 0) launch(batch, tiles);
    batch.runs = 0;
    tiles = 0;
  };
  for (auto const& given : runs) {
    if (given.numel == 0) continue;
    if (batch.runs == Batch::max_runs) flush();
    Run& run = batch.run[batch.runs++] = given;
    run.first_tile = tiles;
    tiles += tiles_of(run);
  }
  flush();
}

/// Operands of one launch.
template <class Rule>
struct UpdateBatch {
  static constexpr int max_runs =
      40;  ///< keeps the functor below the 4 KiB of a device kernel's parameters
  typename Rule::Coefficients coefficients;
  GradientControl const* control;  ///< null: the coefficients hold the factor
  int runs;
  UpdateRun<Rule> run[max_runs];

  KOKKOS_FUNCTION UpdateRun<Rule> const& run_of(std::int64_t tile) const {
    return run_with(run, runs, tile);
  }
  /// False when the step is skipped. The control is read as one pack, or else a device would first
  /// wait for `skip`, then for the factor.
  KOKKOS_FUNCTION bool decide(typename Rule::Coefficients& c) const {
    c = coefficients;
    if (control == nullptr) return true;
    Pack<float, 4> said;
    said.read(reinterpret_cast<float const*>(control));
    c.gradient_factor =
        static_cast<float>(std::bit_cast<double>(said.word[0] | std::uint64_t{said.word[1]} << 32));
    return said.word[2] == 0;
  }
  static_assert(sizeof(GradientControl) == 16 && offsetof(GradientControl, skip) == 8 &&
                std::endian::native == std::endian::little);
};

/// What the pointers of the runs point to.
struct UpdateDtypes {
  Dtype gradient = Dtype::fp32;
  Dtype weights = Dtype::fp32;  ///< dtype of weights_out
  Dtype master = Dtype::fp32, states = Dtype::fp32;
};

/// The values that a rule multiplies with, of one run in one step.
template <class Rule>
struct UpdateValues {
  typename Rule::Coefficients coefficients;
  typename Rule::Rates rates;
};

/// The values of a run, once its rates are known.
template <class Rule>
KOKKOS_INLINE_FUNCTION UpdateValues<Rule> values_of(typename Rule::Coefficients const& c,
                                                    UpdateRun<Rule> const& r) {
  if constexpr (requires { Rule::resolved(c, r.rates); })
    return {c, Rule::resolved(c, r.rates)};
  else
    return {c, r.rates};
}

/// Applies the rule. G: dtype of the gradient; W: of weights_out, void if there is none.
template <class Rule, class G, class W>
struct RuleApplication {
  using Run = UpdateRun<Rule>;
  static constexpr int state_arrays = Rule::states > 0 ? Rule::states : 1;
  static constexpr int pack = 4;  ///< elements

  /// The registers of a lane for one pack.
  struct Registers {
    Pack<G, pack> gradient;
    Pack<float, pack> master, states[state_arrays];

    KOKKOS_FUNCTION void read(Run const& r, std::int64_t at) {
      gradient.read(static_cast<G const*>(r.gradient) + at);
      master.read(r.weights() + at);
      TESSERA_UNROLL
      for (int j = 0; j < Rule::states; ++j)
        states[j].read(r.state(static_cast<std::size_t>(j)) + at);
    }
  };

  /// Updates the pack that starts at element @p at and writes it.
  template <std::size_t... S>
  static KOKKOS_FUNCTION void update_pack(UpdateValues<Rule> const& v, Run const& r,
                                          std::int64_t at, Registers& x,
                                          std::index_sequence<S...>) {
    Pack<W, pack> w;
    TESSERA_UNROLL
    for (int i = 0; i < pack; ++i) {
      float p = x.master.get(i);
      float s[state_arrays] = {x.states[S].get(i)...};
      Rule::element(v.coefficients, v.rates, x.gradient.get(i), p, s[S]...);
      x.master.set(i, p);
      (x.states[S].set(i, s[S]), ...);
      if constexpr (!std::is_void_v<W>) w.set(i, p);
    }
    x.master.write(r.weights() + at);
    (x.states[S].write(r.state(S) + at), ...);
    if constexpr (!std::is_void_v<W>) w.write(static_cast<W*>(r.weights_out) + at);
  }

  /// Updates element @p i on a device.
  template <std::size_t... S>
  static KOKKOS_FUNCTION void update_element(UpdateValues<Rule> const& v, Run const& r,
                                             std::int64_t i, std::index_sequence<S...>) {
    float p = r.weights()[i];
    float s[state_arrays] = {r.state(S)[i]...};
    Rule::element(v.coefficients, v.rates, load(static_cast<G const*>(r.gradient)[i]), p, s[S]...);
    r.weights()[i] = p;
    ((r.state(S)[i] = s[S]), ...);
    if constexpr (!std::is_void_v<W>) store(static_cast<W*>(r.weights_out)[i], p);
  }
};

}  // namespace tessera::kernels::detail
