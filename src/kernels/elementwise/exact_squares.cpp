#include "tessera/kernels/elementwise/gradient_statistics.hpp"

#include <algorithm>
#include <span>

#include "launch/launch.hpp"
#include "launch/partial_sums.hpp"
#include "launch/prefetch.hpp"
#include "tessera/core/error.hpp"
#include "tessera/core/exact_sum.hpp"
#include "tessera/core/rounding.hpp"

namespace tessera::kernels {
namespace {

using namespace detail;

char const* const exact_squares_name = "tessera::kernels::exact_squares";

/// Elements of one sum of a thread.
constexpr std::int64_t elements_per_sum = std::int64_t{1} << 18;
constexpr auto digits_per_sum = static_cast<std::int64_t>(ExactSum::digits);

std::int64_t sums_of(std::int64_t numel) { return ceil_divide(numel, elements_per_sum); }

/// Pairwise: square j with square j + 16, then j + 8, and so on. Missing elements are zero.
template <class T>
double sum_of_squares(T const* in, std::int64_t count) {
  double squares[exact_tile];
  if (count == exact_tile) {
    float wide[exact_tile];
    for (int j = 0; j < exact_tile; ++j) wide[j] = static_cast<float>(in[j]);
    for (int j = 0; j < exact_tile; ++j)
      squares[j] = static_cast<double>(wide[j]) * static_cast<double>(wide[j]);
  } else {
    for (int j = 0; j < exact_tile; ++j) {
      double const v = j < count ? static_cast<double>(static_cast<float>(in[j])) : 0.0;
      squares[j] = v * v;
    }
  }
  for (int half = exact_tile / 2; half > 0; half /= 2)
    for (int j = 0; j < half; ++j) squares[j] += squares[j + half];
  return squares[0];
}

/// digits of sum `index` = the tiles of elements_per_sum elements of one run.
template <class T>
struct ExactSquares {
  T const* in;
  std::int64_t numel;
  std::int64_t* digits;

  void operator()(std::int64_t index) const {
    constexpr int ahead = 1024;  // elements
    ExactSum sum;
    std::int64_t const end = std::min(numel, (index + 1) * elements_per_sum);
    for (std::int64_t at = index * elements_per_sum; at < end; at += exact_tile) {
      prefetch<exact_tile>(in + at + ahead);
      sum.add(sum_of_squares(in + at, std::min(exact_tile, end - at)));
    }
    sum.carry();
    std::copy(sum.data().begin(), sum.data().end(), digits + index * digits_per_sum);
  }
};

void add_up(std::int64_t* total, std::int64_t const* digits, std::int64_t sums) {
  ExactSum sum;
  for (std::int64_t k = 0; k < sums; ++k)
    sum.add(std::span<std::int64_t const, ExactSum::digits>(digits + k * digits_per_sum,
                                                            ExactSum::digits));
  sum.carry();
  std::copy(sum.data().begin(), sum.data().end(), total);
}

template <class T>
void sum_runs(std::int64_t* digits, std::vector<GradientRun> const& runs) {
  for (auto const& run : runs) {
    std::int64_t const sums = sums_of(run.numel);
    if (sums > 0)
      launch_range(HostSpace(), exact_squares_name, sums,
                   ExactSquares<T>{static_cast<T const*>(run.data), run.numel, digits});
    digits += sums * digits_per_sum;
  }
}

}  // namespace

void exact_squares(Queue& q, std::int64_t* digits, std::vector<GradientRun> const& runs,
                   Dtype dtype) {
  TESSERA_VALIDATE(q.kind() != QueueKind::stream, InternalError,
                   "exact sums of squares on a device");
  std::int64_t sums = 0;
  for (auto const& run : runs) sums += sums_of(run.numel);
  auto const work = [digits, runs, dtype, sums] {
    HostPartialSums::of_process().use(sums * digits_per_sum, [&](double* room) {
      auto* const partial = reinterpret_cast<std::int64_t*>(room);
      with_type(dtype, exact_squares_name,
                [&](auto tag) { sum_runs<typename decltype(tag)::type>(partial, runs); });
      add_up(digits, partial, sums);
    });
  };
  Timed const timed(q, exact_squares_name);
  if (q.kind() == QueueKind::inline_host)
    work();
  else
    q.submit(work);
}

}  // namespace tessera::kernels
