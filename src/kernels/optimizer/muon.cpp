#include "tessera/kernels/optimizer/muon.hpp"

#include <algorithm>
#include <cmath>
#include <utility>

#include "optimizer/segment_update.hpp"
#include "tessera/core/rounding.hpp"
#include "tessera/kernels/elementwise/gradient_statistics.hpp"
#include "tessera/kernels/gemm/gemm.hpp"

namespace tessera::kernels {
namespace {

using namespace detail;

struct DirectionRule {
  struct Coefficients {
    float gradient_factor;
    float momentum, one_minus_momentum;
  };
  struct Rates {};
  static constexpr int states = 2;  ///< momentum_buffer, direction

  static KOKKOS_INLINE_FUNCTION void element(Coefficients const& c, Rates const&, float g, float&,
                                             float& m, float& u) {
    // rounded here in every loop: a bare product could be contracted into g - m and m - g
    g = multiply_add(g, c.gradient_factor, 0.0f);
    m = multiply_add(c.one_minus_momentum, g - m, m);
    u = multiply_add(c.momentum, m - g, g);
  }
};

struct StepRule {
  struct Coefficients {
    float gradient_factor;
  };
  struct Rates {
    float keep;  ///< 1 - lr * weight_decay
    float learning_rate;
  };
  static constexpr int states = 1;  ///< direction

  static KOKKOS_INLINE_FUNCTION void element(Coefficients const&, Rates const& r, float, float& p,
                                             float& u) {
    p = multiply_add(-r.learning_rate, u, p * r.keep);
  }
};

constexpr std::int64_t piece = 4096;
constexpr std::int64_t sums_numel = 4;  ///< floats that hold two doubles

/// out = factor * in, or with `norm`: in / (sqrt(*norm) + 1e-7).
struct ScaledCopy {
  float* out;
  float const* in;
  double factor;
  double const* norm;
  std::int64_t numel;

  template <class Team>
  KOKKOS_FUNCTION void operator()(Team const& team, std::int64_t row) const {
    std::int64_t const begin = row * piece;
    float const f = static_cast<float>(norm ? factor / (std::sqrt(*norm) + 1e-7) : factor);
    for_chunks(team, numel - begin < piece ? numel - begin : piece, [&](std::int64_t first, int n) {
      for (std::int64_t i = begin + first; i < begin + first + n; ++i) out[i] = f * in[i];
    });
  }
};

void scaled_copy(Queue& q, float* out, float const* in, double factor, std::int64_t numel,
                 double const* norm = nullptr) {
  parallel_rows(q, "tessera::kernels::scaled_copy", ceil_divide(numel, piece),
                ScaledCopy{out, in, factor, norm, numel});
}

}  // namespace

void muon_directions(Queue& q, MuonStep const& step) {
  DirectionRule::Coefficients const coefficients{1.0f, static_cast<float>(step.momentum),
                                                 static_cast<float>(1.0 - step.momentum)};
  launch_segments<DirectionRule>(q, "tessera::kernels::muon_directions", step, coefficients,
                                 [](UpdateSegment const&) { return DirectionRule::Rates{}; });
}

void muon_update(Queue& q, ElementwiseUpdate const& step) {
  launch_segments<StepRule>(
      q, "tessera::kernels::muon_update", step, {1.0f}, [](UpdateSegment const& s) {
        return StepRule::Rates{static_cast<float>(1.0 - s.learning_rate * s.weight_decay),
                               static_cast<float>(s.learning_rate)};
      });
}

std::int64_t orthogonalize_workspace(std::int64_t rows, std::int64_t columns) {
  std::int64_t const n = std::min(rows, columns);
  return sums_numel + rows * columns + 2 * n * n;
}

void orthogonalize(Queue& q, float* matrix, std::int64_t rows, std::int64_t columns,
                   float* workspace) {
  constexpr double a = 3.4445, b = -4.7750, c = 2.0315;
  constexpr int iterations = 5;
  std::int64_t const n = std::min(rows, columns), numel = rows * columns;
  auto* const sums = reinterpret_cast<double*>(workspace);
  float* const gram = workspace + sums_numel;
  float* const square = gram + n * n;
  float *x = matrix, *other = square + n * n;
  gradient_statistics(q, sums, {{matrix, numel}}, Dtype::fp32);
  scaled_copy(q, x, x, 1.0, numel, sums);
  TensorView const gram_view(gram, Dtype::fp32, {n, n}), square_view(square, Dtype::fp32, {n, n});
  bool const is_tall = rows > columns;
  for (int k = 0; k < iterations; ++k) {
    TensorView const from(x, Dtype::fp32, {rows, columns}), to(other, Dtype::fp32, {rows, columns});
    gemm(q, {.transpose_a = is_tall, .transpose_b = !is_tall}, gram_view, from, from);
    scaled_copy(q, square, gram, b, n * n);
    gemm(q, {.accumulate = true, .alpha = static_cast<float>(c)}, square_view, gram_view,
         gram_view);
    scaled_copy(q, other, x, a, numel);
    is_tall ? gemm(q, {.accumulate = true}, to, from, square_view)
            : gemm(q, {.accumulate = true}, to, square_view, from);
    std::swap(x, other);
  }
  double const aspect = static_cast<double>(rows) / static_cast<double>(columns);
  scaled_copy(q, matrix, x, std::sqrt(std::max(1.0, aspect)), numel);
}

}  // namespace tessera::kernels
