#pragma once
/// The update of an element-wise rule whose master weights or states have 16 bits: values become
/// fp32, are updated and are rounded to nearest even. One traversal of every array. Dtypes are
/// chosen when the kernel runs, so that a rule has one instantiation for all of them.

#include <utility>

#include "launch/typed_values.hpp"
#include "optimizer/optimizer_rule.hpp"

namespace tessera::kernels::detail {

/// functor(tile) on the host: a tile is one thread's.
template <class Rule>
struct HalfTiles {
  UpdateBatch<Rule> batch;
  UpdateDtypes dtypes;
  std::int64_t tile;  ///< elements

  KOKKOS_FUNCTION void operator()(std::int64_t index) const {
    typename Rule::Coefficients c;
    if (!batch.decide(c)) return;
    UpdateRun<Rule> const& r = batch.run_of(index);
    std::int64_t const begin = (index - r.first_tile) * tile;
    std::int64_t const end = begin + tile < r.numel ? begin + tile : r.numel;
    auto const values = values_of<Rule>(c, r);
    std::int64_t at = begin;
    for (; at + chunk <= end; at += chunk)
      update(values, r, at, std::integral_constant<int, chunk>(), States());
    update(values, r, at, static_cast<int>(end - at), States());
  }

 private:
  using States = std::make_index_sequence<Rule::states>;
  static constexpr int chunk = 256;  ///< elements whose fp32 values fit the first cache

  template <class Count, std::size_t... S>
  KOKKOS_FUNCTION void update(UpdateValues<Rule> const& v, UpdateRun<Rule> const& r,
                              std::int64_t at, Count count, std::index_sequence<S...>) const {
    float gradient[chunk], p[chunk], states[Rule::states > 0 ? Rule::states : 1][chunk];
    read(dtypes.gradient, r.gradient, at, count, gradient);
    read(dtypes.master, r.master, at, count, p);
    (read(dtypes.states, r.states[S], at, count, states[S]), ...);
    apply(v, count, gradient, p, states[S]...);
    write(p, count, dtypes.master, r.master, at);
    (write(states[S], count, dtypes.states, r.states[S], at), ...);
    if (r.weights_out) write(p, count, dtypes.weights, r.weights_out, at);
  }

  template <class Count, class... S>
  static KOKKOS_FUNCTION void apply(UpdateValues<Rule> const v, Count count,
                                    float const* __restrict g, float* __restrict p,
                                    S* __restrict... s) {
    for (int j = 0; j < count; ++j) Rule::element(v.coefficients, v.rates, g[j], p[j], s[j]...);
  }
  template <class Count>
  static KOKKOS_FUNCTION void read(Dtype dtype, void const* from, std::int64_t at, Count count,
                                   float* __restrict out) {
    for_type(dtype, from, [&](auto const* data) {
      auto const* const __restrict values = data + at;
      for (int j = 0; j < count; ++j) out[j] = load(values[j]);
    });
  }
  template <class Count>
  static KOKKOS_FUNCTION void write(float const* __restrict values, Count count, Dtype dtype,
                                    void* to, std::int64_t at) {
    for_type(dtype, to, [&](auto* data) {
      auto* const __restrict out = data + at;
      for (int j = 0; j < count; ++j) store(out[j], values[j]);
    });
  }
};

/// functor(element) on a device: neighboring threads at neighboring elements.
template <class Rule>
struct HalfElements {
  UpdateBatch<Rule> batch;  ///< tiles of one element
  UpdateDtypes dtypes;

  KOKKOS_FUNCTION void operator()(std::int64_t index) const {
    typename Rule::Coefficients c;
    if (!batch.decide(c)) return;
    UpdateRun<Rule> const& r = batch.run_of(index);
    update(values_of<Rule>(c, r), r, index - r.first_tile,
           std::make_index_sequence<Rule::states>());
  }

 private:
  template <std::size_t... S>
  KOKKOS_FUNCTION void update(UpdateValues<Rule> const& v, UpdateRun<Rule> const& r, std::int64_t i,
                              std::index_sequence<S...>) const {
    float p = read(dtypes.master, r.master, i);
    float s[Rule::states > 0 ? Rule::states : 1] = {read(dtypes.states, r.states[S], i)...};
    Rule::element(v.coefficients, v.rates, read(dtypes.gradient, r.gradient, i), p, s[S]...);
    write(dtypes.master, r.master, i, p);
    (write(dtypes.states, r.states[S], i, s[S]), ...);
    if (r.weights_out) write(dtypes.weights, r.weights_out, i, p);
  }
  static KOKKOS_FUNCTION float read(Dtype dtype, void const* from, std::int64_t i) {
    float out = 0.0f;
    for_type(dtype, from, [&](auto const* data) { out = load(data[i]); });
    return out;
  }
  static KOKKOS_FUNCTION void write(Dtype dtype, void* to, std::int64_t i, float value) {
    for_type(dtype, to, [&](auto* data) { store(data[i], value); });
  }
};

}  // namespace tessera::kernels::detail
