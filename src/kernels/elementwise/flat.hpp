#pragma once
/// Element-wise kernels: out[i] = op(a[i], b[i]), with as many inputs as there are.
/// Two traversals over one operation. The host runs the loop that compilers vectorize, and writes
/// large results past the caches. On a stream
/// a warp processes a tile of neighboring packs, one per lane. A pack is 16 bytes of the widest
/// operand; each lane reads 64 bytes before it computes, so that enough reads are in flight.
/// Operands that do not share pack boundaries, and the tiles at both ends, are processed element by
/// element. An element's result has the same bits in all cases. An output may be an input, but not
/// overlap one partly.

#include <algorithm>

#include "elementwise/flat_rule.hpp"
#include "launch/launch.hpp"
#include "launch/prefetch.hpp"
#include "launch/stream_lines.hpp"
#include "tessera/core/rounding.hpp"
#include "tessera/core/streaming.hpp"

namespace tessera::kernels::detail {

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
  if (!on_device(q)) {
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
