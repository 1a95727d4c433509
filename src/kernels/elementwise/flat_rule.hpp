#pragma once
/// The operation of an element-wise kernel on its operands: as a loop that the host's compiler
/// vectorizes, as packs of a thread of a device, and of one element.

#include <Kokkos_Core.hpp>
#include <algorithm>
#include <cstdint>
#include <type_traits>

#include "elementwise/dropout.hpp"
#include "launch/bf16_pairs.hpp"
#include "launch/convert.hpp"
#include "launch/pack.hpp"
#include "launch/prefetch.hpp"

namespace tessera::kernels::detail {

/// Op: float op(float...). With Op::draws the first argument is the element's factor of
/// `op.factors`. An Op with is_long gets one copy of its loop, which the traversals call: it would
/// take a minute to compile the copies that they inline, and a call costs little next to it.
template <class Op, class Out, class A = void, class B = void>
struct Flat {
  static constexpr int inputs = (std::is_void_v<A> ? 0 : 1) + (std::is_void_v<B> ? 0 : 1);
  static constexpr std::size_t widest =
      std::max({element_bytes<Out>, element_bytes<A>, element_bytes<B>});
  static constexpr std::size_t narrowest = std::min(
      {element_bytes<Out>, inputs >= 1 ? element_bytes<A> : 4, inputs == 2 ? element_bytes<B> : 4});
  static constexpr int pack = 16 / static_cast<int>(widest);
  static constexpr int packs = inputs == 2 ? 2 : 4;  ///< packs of each operand, per thread
  static constexpr std::int64_t tile = std::int64_t{warp_size} * pack * packs;
  /// The host takes bf16 elements as pairs in a word, where all operands are bf16.
  static constexpr bool in_pairs = has_bf16_pairs && inputs > 0 && only_bf16<Out, A, B>;

  Op op;
  Out* out;
  A const* a = nullptr;
  B const* b = nullptr;
  PrefetchDistance ahead{};  ///< distance of the host

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
    if constexpr (requires { Op::is_long; })
      compute_by_call(to, begin, end);
    else
      compute_inline(to, begin, end);
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
      store(out[i], at_element(i, op.factors.factor(static_cast<std::uint64_t>(i))));
    } else {
      store(out[i], at_element(i));
    }
  }

 private:
  [[gnu::noinline]] KOKKOS_FUNCTION void compute_by_call(Out* to, std::int64_t begin,
                                                         std::int64_t end) const {
    compute_inline(to, begin, end);
  }
  KOKKOS_FUNCTION void compute_inline(Out* to, std::int64_t begin, std::int64_t end) const {
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

}  // namespace tessera::kernels::detail
