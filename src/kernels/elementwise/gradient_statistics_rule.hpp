#pragma once
/// Sum of squares of a block of a gradient.

#include <Kokkos_Core.hpp>
#include <cmath>
#include <cstdint>
#include <type_traits>

#include "launch/bf16_pairs.hpp"
#include "launch/convert.hpp"
#include "launch/interleaved_sums.hpp"
#include "launch/launch.hpp"
#include "launch/pack.hpp"
#include "launch/prefetch.hpp"

namespace tessera::kernels::detail {

/// partial[block] = sum over the block of in[i]^2 in double. Thirty-two running sums, element i
/// goes to sum i mod 32, added pairwise at the end: the order is fixed and the loop vectorizes. The
/// square of any finite fp32 is finite in double, and so is the sum of 2^63 of them: the sum is
/// finite exactly when every element is.
template <class T>
struct SumOfSquares {
  static constexpr int width = 32;
  static constexpr int chunk = prefetched;
  double* partial;
  T const* in;
  PrefetchDistance ahead;

  KOKKOS_FUNCTION void operator()(std::int64_t block, std::int64_t begin, std::int64_t end) const {
    double sum[width] = {};
    std::int64_t const rest = begin + (end - begin) / chunk * chunk;
    if constexpr (std::is_same_v<T, bfloat16> && has_bf16_pairs)
      add_pairs(sum, in, begin, rest, ahead);
    else
      add_chunks(sum, in, begin, rest, ahead);
    for (std::int64_t i = rest; i < end; ++i) sum[(i - rest) % width] += square(load(in[i]));
    for (int half = width / 2; half > 0; half /= 2)
      for (int j = 0; j < half; ++j) sum[j] += sum[j + half];
    partial[block] = sum[0];
  }

 private:
  static KOKKOS_FUNCTION void add_chunks(double (&sum)[width], T const* x, std::int64_t begin,
                                         std::int64_t end, PrefetchDistance ahead) {
    double s[width] = {};  // in registers
    for (std::int64_t at = begin; at < end; at += chunk) {
      prefetch<chunk>(x + at, ahead);
      if constexpr (std::is_same_v<T, float>) {
        for (int i = 0; i < chunk; i += width)
          for (int j = 0; j < width; ++j) s[j] += square(x[at + i + j]);
      } else {  // widened first: both in one loop vectorize badly
        float wide[chunk];
        for (int i = 0; i < chunk; ++i) wide[i] = load(x[at + i]);
        for (int i = 0; i < chunk; i += width)
          for (int j = 0; j < width; ++j) s[j] += square(wide[i + j]);
      }
    }
    for (int j = 0; j < width; ++j) sum[j] = s[j];
  }
  /// Elements in words: sums of even elements, and of odd ones.
  static KOKKOS_FUNCTION void add_pairs(double (&sum)[width], T const* x, std::int64_t begin,
                                        std::int64_t end, PrefetchDistance ahead) {
    constexpr int pairs = width / 2;
    double even[pairs] = {}, odd[pairs] = {};
    for (std::int64_t at = begin; at < end; at += chunk) {
      prefetch<chunk>(x + at, ahead);
      for (int i = 0; i < chunk; i += width)
        for (int j = 0; j < pairs; ++j) {
          std::uint32_t const pair = read_pair(x + at + i + 2 * j);
          even[j] += square(first_of_pair(pair));
          odd[j] += square(second_of_pair(pair));
        }
    }
    for (int j = 0; j < pairs; ++j) sum[2 * j] = even[j], sum[2 * j + 1] = odd[j];
  }
};

/// Elements of one partial sum: 64 KiB of fp32, a few hundred nanoseconds of work of a host thread.
inline constexpr std::int64_t gradient_block = 16384;

/// What lane @p rank of @p size adds of a block of @p count elements, in ascending order: packs
/// rank, rank + size, ... of 16 bytes. Four of them are read before they are added, so that 64
/// bytes of a lane are in flight. The order is the same when the block begins between two borders
/// of packs and its elements are read one by one.
template <class T>
KOKKOS_FUNCTION double squares_of_lane(T const* in, std::int64_t count, std::int64_t rank,
                                       std::int64_t size) {
  constexpr int pack = 16 / sizeof(T), packs = 4;
  double sum = 0.0;
  std::int64_t const stride = size * pack;
  std::int64_t i = rank * pack;
  if (elements_past_boundary(in, pack) == 0) {
    for (; i + (packs - 1) * stride + pack <= count; i += packs * stride) {
      Pack<T, pack> x[packs];
      TESSERA_UNROLL
      for (int k = 0; k < packs; ++k) x[k].read(in + i + k * stride);
      TESSERA_UNROLL
      for (int k = 0; k < packs * pack; ++k) {
        double const v = static_cast<double>(x[k / pack].get(k % pack));
        sum += v * v;
      }
    }
  }
  for (; i < count; i += stride)
    for (std::int64_t j = i; j < i + pack && j < count; ++j) {
      double const v = static_cast<double>(load(in[j]));
      sum += v * v;
    }
  return sum;
}

/// A run of a gradient; its partial sums follow those of the run before.
struct SquaresRun {
  void const* data;
  std::int64_t numel;
  std::int64_t first_block;  ///< first block of this run, in the launch
};

/// partial[index] = sum of squares of one block of one of the runs. On the host a block is one
/// thread's, as above; on a device the lanes of a team share it, and their sums are added in a
/// fixed order, another than above.
template <class T>
struct SquaresOfRuns {
  static constexpr int max_runs =
      128;  ///< keeps the functor below the 4 KiB of a device kernel's parameters
  double* partial;
  PrefetchDistance ahead;
  int runs;
  SquaresRun run[max_runs];

  template <class Lanes>
  KOKKOS_FUNCTION void operator()(Lanes const& lanes, std::int64_t index) const {
    int low = 0, high = runs;  // the last run that starts at or before this block
    while (high - low > 1) {
      int const middle = (low + high) / 2;
      (run[middle].first_block <= index ? low : high) = middle;
    }
    T const* const in = static_cast<T const*>(run[low].data);
    std::int64_t const begin = (index - run[low].first_block) * gradient_block,
                       rest = run[low].numel - begin;
    std::int64_t const end = begin + (rest < gradient_block ? rest : gradient_block);
    if constexpr (std::is_same_v<Lanes, SingleThread>) {
      SumOfSquares<T>{partial, in, ahead}(index, begin, end);
    } else {
      double const sum =
          lanes.sum(squares_of_lane(in + begin, end - begin, lanes.rank(), lanes.size()));
      if (lanes.rank() == 0) partial[index] = sum;
    }
  }
};

/// sums = {total of the partial sums, 1 if it is not finite}. One lane adds them in order; a team's
/// lanes share them as they share blocks.
struct TotalOfSquares {
  double* sums;
  double const* partial;
  std::int64_t count;

  template <class Lanes>
  KOKKOS_FUNCTION void operator()(Lanes const& lanes, std::int64_t) const {
    double sum = 0.0;
    for (std::int64_t i = lanes.rank(); i < count; i += lanes.size()) sum += partial[i];
    sum = lanes.sum(sum);
    if (lanes.rank() == 0) {
      sums[0] = sum;
      sums[1] = std::isfinite(sum) ? 0.0 : 1.0;
    }
  }
};

}  // namespace tessera::kernels::detail
