#pragma once
/// Element-wise kernels: out[i] = op(a[i], b[i]), with as many inputs as there are.
/// Two traversals over one operation. The host runs the loop that compilers vectorize, and writes
/// large results past the caches. On a stream
/// a warp processes a tile of neighboring packs, one per lane. A pack is 16 bytes of the widest
/// operand; each lane reads 64 bytes before it computes, so that enough reads are in flight.
/// Operands that do not share pack boundaries, and the tiles at both ends, are processed element by
/// element. An element's result has the same bits in all cases. An output may be an input, but not
/// overlap one partly.

#include <Kokkos_Core.hpp>
#include <algorithm>
#include <cstdint>
#include <type_traits>

#include "elementwise/dropout.hpp"
#include "launch/bf16_pairs.hpp"
#include "launch/convert.hpp"
#include "launch/launch.hpp"
#include "launch/pack.hpp"
#include "launch/prefetch.hpp"
#include "launch/stream_lines.hpp"
#include "tessera/core/rounding.hpp"
#include "tessera/core/streaming.hpp"

namespace tessera::kernels::detail {

/// Op: float op(float...). With Op::draws the first argument is the element's factor of
/// `op.factors`.
template <class Op, class Out, class A = void, class B = void>
struct Flat {
  static constexpr int inputs = (std::is_void_v<A> ? 0 : 1) + (std::is_void_v<B> ? 0 : 1);
  static constexpr std::size_t widest =
      std::max({element_bytes<Out>, element_bytes<A>, element_bytes<B>});
  static constexpr std::size_t narrowest = std::min(
      {element_bytes<Out>, inputs >= 1 ? element_bytes<A> : 4, inputs == 2 ? element_bytes<B> : 4});
  static constexpr int pack = 16 / static_cast<int>(widest);
  static constexpr int packs = inputs == 2 ? 2 : 4;  ///< of each operand, per thread
  static constexpr std::int64_t tile = std::int64_t{warp_size} * pack * packs;
  /// The host takes bf16 elements as pairs in a word, where all operands are bf16.
  static constexpr bool in_pairs = has_bf16_pairs && inputs > 0 && only_bf16<Out, A, B>;

  Op op;
  Out* out;
  A const* a = nullptr;
  B const* b = nullptr;
  PrefetchDistance ahead{};  ///< of the host

  /// The host's traversal.
  KOKKOS_FUNCTION void operator()(std::int64_t begin, std::int64_t end) const {
    if constexpr (inputs > 0 && !Op::draws) {
      for (; ahead.any() && begin + prefetched <= end; begin += prefetched) {
        if constexpr (inputs >= 1) prefetch<prefetched>(a + begin, ahead);
        if constexpr (inputs == 2) prefetch<prefetched>(b + begin, ahead);
        compute(out + begin, begin, begin + prefetched);
      }
    }
    compute(out + begin, begin, end);
  }
  /// The results of elements [begin, end), written from @p to on.
  KOKKOS_FUNCTION void compute(Out* to, std::int64_t begin, std::int64_t end) const {
    if constexpr (Op::draws) {
      float factor[dropout_chunk];
      for (std::int64_t at = begin; at < end; at += dropout_chunk) {
        int const count = static_cast<int>(end - at < dropout_chunk ? end - at : dropout_chunk);
        op.factors.fill(static_cast<std::uint64_t>(at), count, factor);
#pragma omp simd
        for (int i = 0; i < count; ++i) store(to[at - begin + i], at_element(at + i, factor[i]));
      }
    } else if constexpr (in_pairs) {
      if constexpr (inputs == 1) compute_pairs(op, to, (end - begin) / 2, a + begin);
      if constexpr (inputs == 2) compute_pairs(op, to, (end - begin) / 2, a + begin, b + begin);
      if ((end - begin) % 2 != 0) store(to[end - 1 - begin], at_element(end - 1));
    } else {
#pragma omp simd
      for (std::int64_t i = begin; i < end; ++i) store(to[i - begin], at_element(i));
    }
  }

  /// A thread's packs of a full tile. They begin at elements first + k * warp_size * pack, at pack
  /// boundaries of every operand.
  KOKKOS_FUNCTION void full_packs(std::int64_t first) const {
    constexpr std::int64_t stride = std::int64_t{warp_size} * pack;
    Pack<A, pack> x[packs];
    Pack<B, pack> y[packs];
    TESSERA_UNROLL
    for (int k = 0; k < packs; ++k) {
      if constexpr (inputs >= 1) x[k].read(a + first + k * stride);
      if constexpr (inputs == 2) y[k].read(b + first + k * stride);
    }
    TESSERA_UNROLL
    for (int k = 0; k < packs; ++k) write_pack(first + k * stride, x[k], y[k]);
  }
  KOKKOS_FUNCTION void one_element(std::int64_t i) const {
    if constexpr (Op::draws) {
      store(out[i], at_element(i, op.factors.one(static_cast<std::uint64_t>(i))));
    } else {
      store(out[i], at_element(i));
    }
  }

 private:
  /// Without `this`, whose members a store of words might change.
  template <class... In>
  static KOKKOS_FUNCTION void compute_pairs(Op const f, Out* to, std::int64_t pairs,
                                            In const*... x) {
#pragma omp simd
    for (std::int64_t i = 0; i < pairs; ++i)
      write_pair(to + 2 * i, pair_of(f(first_of_pair(read_pair(x + 2 * i))...),
                                     f(second_of_pair(read_pair(x + 2 * i))...)));
  }
  template <class... Factor>
  KOKKOS_FUNCTION float at_element(std::int64_t i, Factor... factor) const {
    if constexpr (inputs == 2)
      return op(factor..., load(a[i]), load(b[i]));
    else if constexpr (inputs == 1)
      return op(factor..., load(a[i]));
    else
      return op();
  }
  template <class... Factor>
  KOKKOS_FUNCTION float in_packs(int i, Pack<A, pack> const& x, Pack<B, pack> const& y,
                                 Factor... factor) const {
    if constexpr (inputs == 2)
      return op(factor..., x.get(i), y.get(i));
    else if constexpr (inputs == 1)
      return op(factor..., x.get(i));
    else
      return op();
  }
  KOKKOS_FUNCTION void write_pack(std::int64_t first, Pack<A, pack> const& x,
                                  Pack<B, pack> const& y) const {
    Pack<Out, pack> z;
    if constexpr (Op::draws) {
      float factor[pack];
      op.factors.pack(static_cast<std::uint64_t>(first), factor);
      TESSERA_UNROLL
      for (int i = 0; i < pack; ++i) z.set(i, in_packs(i, x, y, factor[i]));
    } else {
      TESSERA_UNROLL
      for (int i = 0; i < pack; ++i) z.set(i, in_packs(i, x, y));
    }
    z.write(out + first);
  }
};

/// The host's traversal of a result that is larger than caches and not an operand: a few lines at
/// a time are computed in registers and stored past the caches, so that memory does not send the
/// lines that are overwritten.
template <class Op, class Out, class A, class B>
struct FlatStreamed {
  static constexpr int inputs = Flat<Op, Out, A, B>::inputs;
  Flat<Op, Out, A, B> rule;

  KOKKOS_FUNCTION void operator()(std::int64_t begin, std::int64_t end) const {
    KOKKOS_IF_ON_HOST((stream(begin, end);))
    KOKKOS_IF_ON_DEVICE((rule(begin, end);))
  }

 private:
  /// Four lines of the result: as many elements are asked for at a time.
  static constexpr std::int64_t group = 4 * cache_line / sizeof(Out);

  void stream(std::int64_t begin, std::int64_t end) const {
    auto const head = static_cast<std::int64_t>(bytes_to_line(rule.out + begin) / sizeof(Out));
    std::int64_t at = std::min(begin + head, end);
    rule(begin, at);
    if constexpr (inputs > 0)
      if (rule.ahead.any()) at = stream_ahead(at, end);
    for (; at + group <= end; at += group) {
      alignas(cache_line) Out values[group];
      rule.compute(values, at, at + group);
      stream_lines<group * sizeof(Out)>(rule.out + at, values);
    }
    rule(at, end);
    finish_streaming();
  }
  /// Asks for operands ahead, and stores results after as few elements as fill vectors of each
  /// operand: then reads and writes mix. @return where full groups end
  std::int64_t stream_ahead(std::int64_t at, std::int64_t end) const {
    using Rule = Flat<Op, Out, A, B>;
    constexpr std::int64_t part = cache_line / Rule::narrowest;
    constexpr std::size_t stored = sizeof(Out) == 4 || Rule::in_pairs ? cache_line : 32;
    for (; at + group <= end; at += group) {
      prefetch<group>(rule.a + at, rule.ahead);
      if constexpr (inputs == 2) prefetch<group>(rule.b + at, rule.ahead);
      for (std::int64_t i = at; i < at + group; i += part) {
        alignas(cache_line) Out values[part];
        rule.compute(values, i, i + part);
        stream_lines<part * sizeof(Out), stored>(rule.out + i, values);
      }
    }
    return at;
  }
};

/// Results of this size and more are written past the caches. Smaller ones may still be in a cache
/// when the next kernel reads them.
inline constexpr std::size_t streamed_bytes = std::size_t{32} << 20;

/// Operands of this size and more are asked for ahead; smaller ones may be in a cache.
inline constexpr std::size_t prefetched_bytes = std::size_t{1} << 20;

template <class Op, class Out, class A, class B>
bool is_streamed(Flat<Op, Out, A, B> const& rule, std::int64_t numel) {
  void const* const out = rule.out;
  return !Op::draws && static_cast<std::size_t>(numel) * sizeof(Out) >= streamed_bytes &&
         out != rule.a && out != rule.b;
}

/// rule(thread): the device's traversal.
template <class Rule>
struct FlatOnDevice {
  Rule rule;
  std::int64_t numel;
  int shift;     ///< elements missing from the first pack
  bool aligned;  ///< all operands share pack boundaries

  KOKKOS_FUNCTION void operator()(std::int64_t thread) const {
    std::int64_t const begin = thread / warp_size * Rule::tile - shift, lane = thread % warp_size;
    if (aligned && begin >= 0 && begin + Rule::tile <= numel)
      return rule.full_packs(begin + lane * Rule::pack);
    for (std::int64_t i = begin + lane; i < begin + Rule::tile && i < numel; i += warp_size)
      if (i >= 0) rule.one_element(i);
  }
};

template <class Op, class Out, class A, class B>
FlatOnDevice<Flat<Op, Out, A, B>> on_device(Flat<Op, Out, A, B> const& rule, std::int64_t numel) {
  constexpr int pack = Flat<Op, Out, A, B>::pack;
  int const shift = elements_past_boundary(rule.out, pack);
  bool const aligned = shares_boundary(rule.a, pack, shift) && shares_boundary(rule.b, pack, shift);
  return {rule, numel, shift, aligned};
}

template <class Rule>
void launch_flat_on_host(Queue& q, char const* name, std::int64_t numel, std::int64_t range,
                         Rule const& rule) {
  launch_on_host(q, name, ceil_divide(numel, range),
                 CallWithChunk<CallWithRange<Rule>>{{rule}, numel, range});
}
/// Elements of one host range of a streamed result: its fence waits for the stores before it.
inline constexpr std::int64_t streamed_range = 32 * host_range;

/// Runs a flat kernel over elements [0, numel).
template <class Op, class Out, class A, class B>
void parallel_flat(Queue& q, char const* name, std::int64_t numel,
                   Flat<Op, Out, A, B> const& rule) {
  using Rule = Flat<Op, Out, A, B>;
  if (numel <= 0) return;
  if (q.kind() != QueueKind::stream) {
    auto host = rule;
    if (static_cast<std::size_t>(numel) * Rule::widest >= prefetched_bytes)
      host.ahead = prefetch_distance(Prefetched::updates, Rule::widest);
    return is_streamed(rule, numel) ? launch_flat_on_host(q, name, numel, streamed_range,
                                                          FlatStreamed<Op, Out, A, B>{host})
                                    : launch_flat_on_host(q, name, numel, host_range, host);
  }
  auto const device = on_device(rule, numel);
  parallel_for(q, name, ceil_divide(numel + device.shift, Rule::tile) * warp_size, device);
}

}  // namespace tessera::kernels::detail
