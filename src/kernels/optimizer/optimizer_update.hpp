#pragma once
/// The fused flat update that all element-wise optimizers share: applies a rule to segments, as
/// tiles of a host thread or as packs of a device's warp.
///
/// There are two traversals over one rule: a host thread wants long loops with restrict pointers,
/// and a device wants every operand in registers before the first is used.

#include <Kokkos_Core.hpp>
#include <cstddef>
#include <cstdint>
#include <type_traits>
#include <utility>
#include <vector>

#include "launch/launch.hpp"
#include "launch/pack.hpp"
#include "launch/prefetch.hpp"
#include "launch/typed_values.hpp"
#include "optimizer/optimizer_rule.hpp"
#include "tessera/core/rounding.hpp"

namespace tessera::kernels::detail {

/// functor(tile) on the host: a tile is one thread's. Values in fp32 are updated where they are,
/// others in buffers, and rounded to nearest even. Dtypes are chosen when the kernel runs, so that
/// a rule has one instantiation for all of them.
template <class Rule>
struct UpdateTiles {
  UpdateBatch<Rule> batch;
  UpdateDtypes dtypes;
  std::int64_t tile;  ///< elements
  PrefetchDistance ahead;

  KOKKOS_FUNCTION void operator()(std::int64_t index) const {
    typename Rule::Coefficients c;
    if (!batch.decide(c)) return;
    UpdateRun<Rule> const& r = batch.run_of(index);
    std::int64_t const begin = (index - r.first_tile) * tile;
    std::int64_t const end = begin + tile < r.numel ? begin + tile : r.numel;
    auto const values = values_of<Rule>(c, r);
    std::int64_t at = begin;
    for (; at + chunk <= end; at += chunk) {
      if (ahead.any()) prefetch_chunk(r, at, States());
      update(values, r, at, std::integral_constant<int, chunk>(), States());
    }
    update(values, r, at, static_cast<int>(end - at), States());
  }

 private:
  using States = std::make_index_sequence<Rule::states>;
  static constexpr int chunk = prefetched;

  template <std::size_t... S>
  KOKKOS_FUNCTION void prefetch_chunk(UpdateRun<Rule> const& r, std::int64_t at,
                                      std::index_sequence<S...>) const {
    auto const ask = [&](auto* data) { prefetch<chunk>(data + at, ahead); };
    for_type(dtypes.master, r.master, ask);
    (for_type(dtypes.states, r.states[S], ask), ...);
    for_type(dtypes.gradient, r.gradient, ask);
    if (r.weights_out) for_type(dtypes.weights, r.weights_out, ask);
  }

  template <class Count, std::size_t... S>
  KOKKOS_FUNCTION void update(UpdateValues<Rule> const& v, UpdateRun<Rule> const& r,
                              std::int64_t at, Count count, std::index_sequence<S...>) const {
    float gradient[chunk], master[chunk];
    [[maybe_unused]] float states[Rule::states > 0 ? Rule::states : 1][chunk];
    float const* const g = read(dtypes.gradient, r.gradient, at, count, gradient);
    float* const p = read(dtypes.master, r.master, at, count, master);
    [[maybe_unused]] float* const s[] = {nullptr,
                                         read(dtypes.states, r.states[S], at, count, states[S])...};
    apply(v, count, g, p, s[S + 1]...);
    if (p == master) write(p, count, dtypes.master, r.master, at);
    if (dtypes.states != Dtype::fp32)
      (write(states[S], count, dtypes.states, r.states[S], at), ...);
    if (r.weights_out) write(p, count, dtypes.weights, r.weights_out, at);
  }

  template <class Count, class... S>
  static KOKKOS_FUNCTION void apply(UpdateValues<Rule> const v, Count count,
                                    float const* __restrict g, float* __restrict p,
                                    S* __restrict... s) {
    for (int j = 0; j < count; ++j) Rule::element(v.coefficients, v.rates, g[j], p[j], s[j]...);
  }
  /// The values from element @p at on as fp32: those of @p from itself, or copies in @p buffer.
  template <class Count, class T>
  static KOKKOS_FUNCTION auto read(Dtype dtype, T* from, std::int64_t at, Count count,
                                   float* __restrict buffer) {
    using Value = std::conditional_t<std::is_const_v<T>, float const, float>;
    if (dtype == Dtype::fp32) return static_cast<Value*>(from) + at;
    for_type(dtype, from, [&](auto const* data) {
      auto const* const __restrict values = data + at;
      for (int j = 0; j < count; ++j) buffer[j] = load(values[j]);
    });
    return static_cast<Value*>(buffer);
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

/// functor(thread) on a device: a warp takes a tile of a run, a lane `packs` packs of four elements
/// of it, 16 bytes of each fp32 array and 8 of 16-bit ones. A lane reads all of them before it
/// computes the first, so that 64 bytes or more are in flight. Tiles at the ends of a run, and runs
/// whose arrays do not share their packs' borders, are updated element by element, neighboring
/// lanes at neighboring elements.
template <class Rule, class G, class W>
struct UpdatePacks {
  using Coefficients = typename Rule::Coefficients;
  using Run = UpdateRun<Rule>;
  using States = std::make_index_sequence<Rule::states>;
  using Application = RuleApplication<Rule, G, W>;
  static constexpr int pack = Application::pack, packs = 2;
  static constexpr std::int64_t tile = std::int64_t{warp_size} * pack * packs;
  UpdateBatch<Rule> batch;

  static std::int32_t shift_of(Run const& r) {
    int const shift = elements_past_boundary(r.weights(), pack);
    bool shared = shares_boundary(static_cast<G const*>(r.gradient), pack, shift) &&
                  shares_boundary(static_cast<W const*>(r.weights_out), pack, shift);
    for (std::size_t s = 0; s < Rule::states; ++s)
      shared = shared && shares_boundary(r.state(s), pack, shift);
    return shared ? shift : Run::unaligned;
  }
  static std::int64_t tiles_of(Run const& r) {
    return ceil_divide(r.numel + (r.shift > 0 ? r.shift : 0), tile);
  }

  KOKKOS_FUNCTION void operator()(std::int64_t thread) const {
    std::int64_t const index = thread / warp_size, lane = thread % warp_size;
    Run const& r = batch.run_of(index);
    std::int64_t const begin = (index - r.first_tile) * tile - (r.shift > 0 ? r.shift : 0);
    if (r.shift >= 0 && begin >= 0 && begin + tile <= r.numel)
      return full_packs(r, begin + lane * pack);
    Coefficients c;
    if (!batch.decide(c)) return;
    auto const values = values_of<Rule>(c, r);
    for (std::int64_t i = begin + lane; i < begin + tile && i < r.numel; i += warp_size)
      if (i >= 0) Application::update_element(values, r, i, States());
  }

 private:
  KOKKOS_FUNCTION void full_packs(Run const& r, std::int64_t first) const {
    constexpr std::int64_t stride = std::int64_t{warp_size} * pack;
    typename Application::Registers x[packs];
    TESSERA_UNROLL
    for (int k = 0; k < packs; ++k) x[k].read(r, first + k * stride);
    Coefficients c;  // decided after the reads have begun
    if (!batch.decide(c)) return;
    auto const values = values_of<Rule>(c, r);
    TESSERA_UNROLL
    for (int k = 0; k < packs; ++k)
      Application::update_pack(values, r, first + k * stride, x[k], States());
  }
};

/// functor(element) on a device, of a rule whose master weights or states have 16 bits: neighboring
/// threads at neighboring elements.
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

/// What a step is launched with.
template <class Rule>
struct UpdateStep {
  char const* name;  ///< name of the kernel
  typename Rule::Coefficients coefficients;
  GradientControl const* control;
  UpdateDtypes dtypes;
  std::vector<UpdateRun<Rule>> runs;
};

/// Number of tiles on the host.
template <class Rule>
std::int64_t host_tiles(UpdateRun<Rule> const& run) {
  return ceil_divide(run.numel, host_range);
}

/// Enqueues the update on the host: one traversal of every array.
template <class Rule>
void launch_tiles(Queue& q, UpdateStep<Rule> const& step) {
  UpdateBatch<Rule> const empty{step.coefficients, step.control, 0, {}};
  auto const ahead = prefetch_distance(Prefetched::updates);
  for_batches(empty, step.runs, host_tiles<Rule>, [&](auto const& batch, std::int64_t tiles) {
    launch_on_host(q, step.name, tiles, UpdateTiles<Rule>{batch, step.dtypes, host_range, ahead});
  });
}

/// On a device the runs that write 16-bit weights (W) or those that do not (void).
template <class G, class W, class Rule>
void launch_packs(Queue& q, UpdateStep<Rule> const& step) {
  using Packs = UpdatePacks<Rule, G, W>;
  std::vector<UpdateRun<Rule>> runs;
  for (auto const& run : step.runs)
    if ((run.weights_out == nullptr) == std::is_void_v<W>) runs.push_back(run);
  auto const place = [](UpdateRun<Rule>& run) {
    run.shift = Packs::shift_of(run);
    return Packs::tiles_of(run);
  };
  UpdateBatch<Rule> const empty{step.coefficients, step.control, 0, {}};
  for_batches(empty, runs, place, [&](auto const& batch, std::int64_t tiles) {
    parallel_for(q, step.name, tiles * warp_size, Packs{batch});
  });
}

/// On a device with master weights or states of 16 bits.
template <class Rule>
void launch_half_elements(Queue& q, UpdateStep<Rule> const& step) {
  UpdateBatch<Rule> const empty{step.coefficients, step.control, 0, {}};
  auto const elements = [](UpdateRun<Rule> const& run) { return run.numel; };
  for_batches(empty, step.runs, elements, [&](auto const& batch, std::int64_t numel) {
    parallel_for(q, step.name, numel, HalfElements<Rule>{batch, step.dtypes});
  });
}

/// Enqueues the update of all runs: one traversal of every array. On a device gradients are in fp32
/// or the dtype of the weights; the traversal of 16-bit states serves what differs from that.
template <class Rule>
void launch_update(Queue& q, UpdateStep<Rule> const& step) {
  if (!on_device(q)) return launch_tiles(q, step);
  if constexpr (has_device_forms) {
    UpdateDtypes const& d = step.dtypes;
    if (d.master != Dtype::fp32 || d.states != Dtype::fp32 ||
        (d.gradient != Dtype::fp32 && d.gradient != d.weights))
      return launch_half_elements(q, step);
    with_type(d.gradient, step.name, [&](auto g) {
      using G = typename decltype(g)::type;
      launch_packs<G, void>(q, step);
      if constexpr (std::is_same_v<G, float>)
        with_type(d.weights, step.name,
                  [&](auto w) { launch_packs<float, typename decltype(w)::type>(q, step); });
      else
        launch_packs<G, G>(q, step);
    });
  }
}

}  // namespace tessera::kernels::detail
