#pragma once
/// The update of an element-wise rule whose states have 8 bits: one traversal in which a chunk's
/// states become fp32, are updated and are quantized again with the absmax of their new values.

#include <Kokkos_Core.hpp>
#include <bit>
#include <type_traits>
#include <utility>
#include <vector>

#include "launch/launch.hpp"
#include "launch/prefetch.hpp"
#include "launch/typed_values.hpp"
#include "optimizer/optimizer_rule.hpp"
#include "optimizer/quantized_chunk.hpp"
#include "tessera/core/error.hpp"
#include "tessera/core/rounding.hpp"
#include "tessera/kernels/optimizer/quantized_values.hpp"

namespace tessera::kernels::detail {

/// A segment in the form that a launch carries by value.
template <class Rule>
struct QuantizedRun {
  float* master;
  QuantizedValues states[Rule::states];
  void const* gradient;
  void* weights_out;
  std::int64_t numel;
  typename Rule::Rates rates;
  std::int64_t first_tile = 0;  ///< first item of this run, in the launch
};

/// The elements of a chunk that one thread has: all of them on the host, every warp_size-th in a
/// warp.
template <class Rule>
struct QuantizedChunks {
  static constexpr int max_runs =
      28;  ///< keeps the functor below the 4 KiB of a device kernel's parameters
  static constexpr int scratch_floats = 1;
  static constexpr int warps = 4;  ///< warps of a team on a device; each takes a chunk
  using Coefficients = typename Rule::Coefficients;
  using States = std::make_index_sequence<Rule::states>;
  using Run = QuantizedRun<Rule>;

  Coefficients coefficients;
  GradientControl const* control;  ///< null: the coefficients hold the factor
  QuantizationTable const* table[Rule::states];
  Dtype gradient_dtype, weights_dtype;
  std::int64_t chunks_of_item;
  int runs;
  Run run[max_runs];

  /// Updates an item on the host, where one thread has it.
  KOKKOS_FUNCTION void operator()(std::int64_t item) const {
    Coefficients c;
    if (!decide(c)) return;
    Run const& r = run_with(run, runs, item);
    std::int64_t const first = (item - r.first_tile) * chunks_of_item;
    for (std::int64_t k = first; k < first + chunks_of_item; ++k)
      if (k * quantization_chunk < r.numel) update<1>(c, r, k, 0, Alone());
  }
  /// Updates an item on a device, where a team has it.
  template <class Team>
  KOKKOS_FUNCTION void operator()(Team const& team, std::int64_t item) const {
    Coefficients c;
    if (!decide(c)) return;
    Run const& r = run_with(run, runs, item);
    std::int64_t const k = (item - r.first_tile) * chunks_of_item + team.rank() / warp_size;
    if (k * quantization_chunk < r.numel) update<warp_size>(c, r, k, team.rank() % warp_size, team);
  }

 private:
  /// Prefetches quarter @p q of the chunk after the next one, on the host. The arithmetic of a
  /// chunk is long enough to hide most reads of later ones, if they are not requested all together.
  template <std::size_t... S>
  KOKKOS_FUNCTION void prefetch_quarter(Run const& r, std::int64_t k, int q,
                                        std::index_sequence<S...>) const {
    constexpr std::int64_t n = quantization_chunk / 4;
    std::int64_t const at = (k + 2) * quantization_chunk + q * n;
    prefetch<n>(r.master + at);
    (prefetch<n>(r.states[S].codes + at), ...);
    for_type(gradient_dtype, r.gradient, [&](auto* g) { prefetch<n>(g + at); });
    if (r.weights_out)
      for_type(weights_dtype, r.weights_out, [&](auto* w) { prefetch<n>(w + at); });
  }

  struct Alone {
    template <int N>
    KOKKOS_FUNCTION void exchange(float const (&)[N], int, float (&)[N]) const {}
  };

  KOKKOS_FUNCTION bool decide(Coefficients& c) const {
    c = coefficients;
    if (control) c.gradient_factor = static_cast<float>(control->gradient_factor);
    return control == nullptr || control->skip == 0;
  }

  /// A thread's first element of a run, and its chunk.
  struct Place {
    std::int64_t element, chunk;
  };
  /// Element @p j of a thread is element lane + j * lanes of the chunk.
  template <int lanes>
  struct Values {
    static constexpr int count = static_cast<int>(quantization_chunk) / lanes;
    float gradient[count], master[count], states[Rule::states][count];
  };

  template <int lanes, class Team>
  KOKKOS_FUNCTION void update(Coefficients const& c, Run const& r, std::int64_t k, int lane,
                              Team const& team) const {
    using Full = std::integral_constant<int, Values<lanes>::count>;
    std::int64_t const begin = k * quantization_chunk, left = r.numel - begin;
    if (left >= quantization_chunk) return update<lanes>(c, r, k, lane, team, Full());
    int const n = static_cast<int>(left);
    update<lanes>(c, r, k, lane, team, lane < n ? (n - lane + lanes - 1) / lanes : 0);
  }
  /// @tparam Count int, or a constant for loops without a remainder
  template <int lanes, class Team, class Count>
  KOKKOS_FUNCTION void update(Coefficients const& c, Run const& r, std::int64_t k, int lane,
                              Team const& team, Count count) const {
    std::int64_t const at = k * quantization_chunk + lane;
    Values<lanes> x;
    prefetch_quarter(r, k, 0, States());
    for_type(gradient_dtype, r.gradient,
             [&](auto* g) { load_values<lanes>(g + at, count, x.gradient); });
    load_values<lanes>(r.master + at, count, x.master);
    prefetch_quarter(r, k, 1, States());
    read_states<lanes>(r, {at, k}, count, x, States());
    prefetch_quarter(r, k, 2, States());
    apply(c, r.rates, count, x, States());
    prefetch_quarter(r, k, 3, States());
    store_values<lanes>(x.master, count, r.master + at);
    if (r.weights_out)
      for_type(weights_dtype, r.weights_out,
               [&](auto* w) { store_values<lanes>(x.master, count, w + at); });
    write_states<lanes>(r, {at, k}, count, x, team, States());
  }

  template <int lanes, class T, class Count>
  static KOKKOS_FUNCTION void load_values(T const* __restrict from, Count count,
                                          float* __restrict out) {
    for (int j = 0; j < count; ++j) out[j] = load(from[j * lanes]);
  }
  template <int lanes, class T, class Count>
  static KOKKOS_FUNCTION void store_values(float const* __restrict values, Count count,
                                           T* __restrict to) {
    for (int j = 0; j < count; ++j) store(to[j * lanes], values[j]);
  }
  template <int lanes, class Count, std::size_t... S>
  KOKKOS_FUNCTION void read_states(Run const& r, Place place, Count count, Values<lanes>& x,
                                   std::index_sequence<S...>) const {
    (decode<lanes, Rule::maps[S]>(table[S]->number, r.states[S].codes + place.element,
                                  r.states[S].absmax[place.chunk], count, x.states[S]),
     ...);
  }
  /// Whether the elements are a complete chunk on the host.
  template <int lanes, class Count>
  static constexpr bool is_complete = lanes == 1 && !std::is_same_v<Count, int>;

  template <int lanes, DynamicMap map, class Count>
  static KOKKOS_FUNCTION void decode(float const* __restrict number,
                                     std::uint8_t const* __restrict codes, float absmax,
                                     Count count, float* __restrict out) {
    if constexpr (is_complete<lanes, Count>) {
      KOKKOS_IF_ON_HOST((return decode_chunk(map, codes, absmax, out);))
    }
    for (int j = 0; j < count; ++j) out[j] = number[codes[j * lanes]] * absmax;
  }

  template <int lanes, class Count, std::size_t... S>
  static KOKKOS_FUNCTION void apply(Coefficients const c, typename Rule::Rates const rates,
                                    Count count, Values<lanes>& x, std::index_sequence<S...>) {
    for (int j = 0; j < count; ++j)
      Rule::element(c, rates, x.gradient[j], x.master[j], x.states[S][j]...);
  }

  template <int lanes, class Team, class Count, std::size_t... S>
  KOKKOS_FUNCTION void write_states(Run const& r, Place place, Count count, Values<lanes> const& x,
                                    Team const& team, std::index_sequence<S...>) const {
    (write_state<lanes, Rule::maps[S]>(*table[S], r.states[S], place, count, x.states[S], team),
     ...);
  }
  template <int lanes, DynamicMap map, class Team, class Count>
  static KOKKOS_FUNCTION void write_state(QuantizationTable const& table, QuantizedValues to,
                                          Place place, Count count, float const* values,
                                          Team const& team) {
    std::uint32_t most = 0;  // as bits, which keeps NaN
    for (int j = 0; j < count; ++j) {
      std::uint32_t const magnitude = std::bit_cast<std::uint32_t>(values[j]) & 0x7FFFFFFFu;
      most = most > magnitude ? most : magnitude;
    }
    for (int mask = lanes / 2; mask > 0; mask /= 2) {
      float const mine[1] = {std::bit_cast<float>(most)};
      float other[1];
      team.exchange(mine, mask, other);
      auto const magnitude = std::bit_cast<std::uint32_t>(other[0]);
      most = most > magnitude ? most : magnitude;
    }
    float const absmax = std::bit_cast<float>(most);
    encode<lanes, map>(table.bucket, values, divisor_of(absmax), count, to.codes + place.element);
    if (place.element % quantization_chunk == 0) to.absmax[place.chunk] = absmax;
  }
  template <int lanes, DynamicMap map, class Count>
  static KOKKOS_FUNCTION void encode(std::int32_t const* __restrict bucket,
                                     float const* __restrict values, float divisor, Count count,
                                     std::uint8_t* __restrict codes) {
    if constexpr (is_complete<lanes, Count>) {
      KOKKOS_IF_ON_HOST((return encode_chunk(map, values, divisor, codes);))
    }
    int wide[Values<lanes>::count];  // narrowed by a loop of its own, or neither vectorizes
    for (int j = 0; j < count; ++j)
      wide[j] = QuantizationTable::code<map>(bucket, values[j], divisor);
    for (int j = 0; j < count; ++j) codes[j * lanes] = static_cast<std::uint8_t>(wide[j]);
  }
};

/// What an update is launched with. Rule::maps are the maps of the states.
template <class Rule>
struct QuantizedStep {
  char const* name;  ///< name of the kernel
  typename Rule::Coefficients coefficients;
  GradientControl const* control;
  Dtype gradient_dtype, weights_dtype;
  std::vector<QuantizedRun<Rule>> runs;
};

/// @throws InternalError for a run without the memory that @p Rule needs
template <class Rule>
void check_run(QuantizedRun<Rule> const& run, char const* name) {
  bool complete = run.numel > 0 && run.master && run.gradient;
  for (auto const& state : run.states) complete = complete && state.codes && state.absmax;
  TESSERA_VALIDATE(run.numel == 0 || complete, InternalError, name, " got a segment of ", run.numel,
                   " elements without its weights, codes or gradient");
}

/// Enqueues the update of all runs.
template <class Rule>
void launch_quantized(Queue& q, QuantizedStep<Rule> const& step) {
  using Chunks = QuantizedChunks<Rule>;
  bool const in_blocks = in_thread_blocks(q);
  Chunks empty{step.coefficients,
               step.control,
               {},
               step.gradient_dtype,
               step.weights_dtype,
               in_blocks ? Chunks::warps : host_range / quantization_chunk,
               0,
               {}};
  for (std::size_t k = 0; k < Rule::states; ++k) empty.table[k] = table_for(q, Rule::maps[k]);
  for (auto const& run : step.runs) check_run(run, step.name);
  auto const items_of = [&](QuantizedRun<Rule> const& run) {
    return ceil_divide(run.numel, empty.chunks_of_item * quantization_chunk);
  };
  for_batches(empty, step.runs, items_of, [&](Chunks const& batch, std::int64_t items) {
    if (!in_blocks) return launch_on_host(q, step.name, items, batch);
    if constexpr (has_thread_blocks)
      parallel_teams<warp_size * Chunks::warps>(q, step.name, items, batch);
  });
}

}  // namespace tessera::kernels::detail
