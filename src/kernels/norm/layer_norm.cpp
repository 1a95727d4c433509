#include "tessera/kernels/norm/layer_norm.hpp"

// The host's traversal: one thread per row or chunk of rows. A device uses it too for rows that do
// not fit registers; its own traversal is detail/layer_norm_device.hpp.

#include "elementwise/column_sums_launch.hpp"
#include "launch/convert.hpp"
#include "launch/launch.hpp"
#include "norm/layer_norm_backward_device.hpp"
#include "norm/layer_norm_device.hpp"
#include "norm/norm_rows.hpp"

namespace tessera::kernels {
namespace {

using detail::for_chunks;
using detail::load;
using detail::store;
using detail::with_type;
using detail::with_types;

template <class T, class Result>
struct Normalize {
  Result* out;
  float *mean, *rstd;
  T const *in, *gamma, *beta;
  std::int64_t columns;
  float epsilon;

  /// Mean first, then the sum of squared deviations: no cancellation. The row stays in the L1
  /// cache.
  template <class Team>
  KOKKOS_FUNCTION void operator()(Team const& team, std::int64_t row) const {
    T const* const x = in + row * columns;
    float sum = 0.0f;
    for_chunks(team, columns, [&](std::int64_t c, int n) {
      float part = 0.0f;
#pragma omp simd reduction(+ : part)
      for (int i = 0; i < n; ++i) part += load(x[c + i]);
      sum += part;
    });
    float const average = team.sum(sum) / static_cast<float>(columns);
    float squares = 0.0f;
    for_chunks(team, columns, [&](std::int64_t c, int n) {
      float part = 0.0f;
#pragma omp simd reduction(+ : part)
      for (int i = 0; i < n; ++i) part += (load(x[c + i]) - average) * (load(x[c + i]) - average);
      squares += part;
    });
    float const inverse =
        1.0f / Kokkos::sqrt(team.sum(squares) / static_cast<float>(columns) + epsilon);
    Result* const y = out + row * columns;
    T const *const g = gamma, *const b = beta;
    for_chunks(team, columns, [&](std::int64_t c, int n) {
#pragma omp simd
      for (int i = 0; i < n; ++i)
        store(y[c + i], (load(x[c + i]) - average) * inverse * load(g[c + i]) + load(b[c + i]));
    });
    if (team.rank() == 0) {
      mean[row] = average;
      rstd[row] = inverse;
    }
  }
};

/// With x^ = (x - mean) rstd and h = dout gamma:  din = rstd (h - mean(h) - x^ mean(h x^)),  dgamma
/// = sum dout x^,  dbeta = sum dout.
template <class T, class Copy>
struct NormalizeBackward {
  T* din;
  Copy* copy;  ///< receives din as well, or null
  T const *dout, *in;
  float const *mean, *rstd;
  T const* gamma;
  float* parts;
  std::int64_t rows, columns, chunk;
  bool accumulate;

  template <class Team>
  KOKKOS_FUNCTION void operator()(Team const& team, std::int64_t index) const {
    float* const dgamma = parts + 2 * index * columns;
    float* const dbeta = dgamma + columns;
    for_chunks(team, columns, [&](std::int64_t c, int n) {
      for (int i = 0; i < n; ++i) dgamma[c + i] = dbeta[c + i] = 0.0f;
    });
    std::int64_t const end = (index + 1) * chunk < rows ? (index + 1) * chunk : rows;
    for (std::int64_t row = index * chunk; row < end; ++row) one_row(team, row, dgamma, dbeta);
  }

  template <class Team>
  KOKKOS_FUNCTION void one_row(Team const& team, std::int64_t row, float* dgamma,
                               float* dbeta) const {
    T const *const x = in + row * columns, *const dy = dout + row * columns, *const g = gamma;
    float const average = mean[row], inverse = rstd[row];
    float sum_h = 0.0f, sum_hx = 0.0f;
    for_chunks(team, columns, [&](std::int64_t c, int n) {
      float part_h = 0.0f, part_hx = 0.0f;
#pragma omp simd reduction(+ : part_h, part_hx)
      for (int i = 0; i < n; ++i) {
        float const h = load(dy[c + i]) * load(g[c + i]);
        part_h += h;
        part_hx += h * ((load(x[c + i]) - average) * inverse);
      }
      sum_h += part_h;
      sum_hx += part_hx;
    });
    float const mean_h = team.sum(sum_h) / static_cast<float>(columns);
    float const mean_hx = team.sum(sum_hx) / static_cast<float>(columns);
    T* const dx = din + row * columns;
    for_chunks(team, columns, [&](std::int64_t c, int n) {
#pragma omp simd
      for (int i = 0; i < n; ++i) {
        float const d = load(dy[c + i]), normal = (load(x[c + i]) - average) * inverse;
        float const before = accumulate ? load(dx[c + i]) : 0.0f;
        store(dx[c + i], before + inverse * (d * load(g[c + i]) - mean_h - normal * mean_hx));
        dgamma[c + i] += d * normal;
        dbeta[c + i] += d;
      }
      if (copy) detail::copy_converted(copy + row * columns + c, dx + c, n);
    });
  }
};

template <class T, class Result>
Normalize<T, Result> make_normalize(LayerNormWeights const& norm, LayerNormOutput const& to,
                                    ConstTensorView in) {
  TESSERA_EXPECT(norm.beta.numel() == norm.gamma.numel() && to.out.numel() == in.numel());
  TESSERA_EXPECT(to.mean.numel() * norm.gamma.numel() == in.numel() &&
                 to.rstd.numel() == to.mean.numel());
  return {to.out.as<Result>(), to.mean.as<float>(), to.rstd.as<float>(), in.as<T>(),
          norm.gamma.as<T>(),  norm.beta.as<T>(),   norm.gamma.numel(),  norm.epsilon};
}

/// Makes the rule of a team that keeps rows in registers.
template <int Threads, class T, class Result>
detail::TeamNormalize<T, Threads, Result> in_registers(Normalize<T, Result> const& n,
                                                       std::int64_t rows) {
  return {n.out, n.mean, n.rstd, n.in, n.gamma, n.beta, rows, n.columns, n.epsilon};
}

/// din, and the partial sums of dgamma and dbeta. @return the number of chunks
template <class T, class Copy>
std::int64_t backward_rows(Queue& q, LayerNormGradients const& to,
                           LayerNormBackwardInput const& from, float* parts) {
  char const* const name = "tessera::kernels::layer_norm_backward";
  std::int64_t const rows = from.mean.numel(), columns = from.gamma.numel(),
                     chunk = detail::norm_rows_per_chunk(rows);
  std::int64_t chunks = detail::norm_chunks(rows, chunk);
  NormalizeBackward<T, Copy> const rule{to.din.view.as<T>(),
                                        to.copy.empty() ? nullptr : to.copy.as<Copy>(),
                                        from.dout.as<T>(),
                                        from.in.as<T>(),
                                        from.mean.as<float>(),
                                        from.rstd.as<float>(),
                                        from.gamma.as<T>(),
                                        parts,
                                        rows,
                                        columns,
                                        chunk,
                                        to.din.mode == WriteMode::add};
  auto const team = [&](auto threads) {
    detail::TeamNormalizeBackward<T, decltype(threads)::value, Copy> const out{
        rule.din,        rule.dout, rule.in, rule.mean, rule.rstd,
        rule.gamma,      parts,     rows,    columns,   detail::rows_per_norm_chunk(rows),
        rule.accumulate, rule.copy};
    chunks = out.teams();
    return out;
  };
  if (!detail::run_in_registers<T>(q, name, columns, team, rule.din, rule.dout, rule.in, rule.gamma,
                                   rule.copy))
    detail::parallel_rows(q, name, chunks, rule);
  return chunks;
}

/// dgamma and dbeta from their partial sums.
template <class G>
void backward_parameters(Queue& q, LayerNormGradients const& to, detail::ColumnPartials parts) {
  char const* const name = "tessera::kernels::layer_norm_backward_parameters";
  G *const dgamma = to.dgamma.as<G>(), *const dbeta = to.dbeta.as<G>();
  bool const accumulate = to.parameters == WriteMode::add;
  detail::add_column_parts<G>(q, name, {dgamma, dbeta, parts.columns, accumulate},
                              {parts.data, parts.chunks, 2 * parts.columns});
}

}  // namespace

void layer_norm(Queue& q, LayerNormWeights const& norm, LayerNormOutput const& to,
                ConstTensorView in) {
  with_types(in.dtype(), to.out.dtype(), "layer_norm", [&](auto tag, auto result) {
    using T = typename decltype(tag)::type;
    char const* const name = "tessera::kernels::layer_norm";
    auto const rule = make_normalize<T, typename decltype(result)::type>(norm, to, in);
    std::int64_t const rows = to.mean.numel();
    memory::note_operands(q, name, in, to.out);
    auto const team = [&](auto threads) {
      return in_registers<decltype(threads)::value>(rule, rows);
    };
    if (!detail::run_in_registers<T>(q, name, rule.columns, team, rule.out, rule.in, rule.gamma,
                                     rule.beta))
      detail::parallel_rows(q, name, rows, rule);
  });
}

void residual_layer_norm(Queue& q, LayerNormWeights const& norm, TensorView sum,
                         LayerNormOutput const& to, ResidualBranch const& in) {
  TESSERA_EXPECT(sum.numel() == in.residual.numel() && sum.numel() == in.branch.numel());
  with_types(sum.dtype(), to.out.dtype(), "residual_layer_norm", [&](auto tag, auto result) {
    using T = typename decltype(tag)::type;
    using Result = typename decltype(result)::type;
    char const* const name = "tessera::kernels::residual_layer_norm";
    auto const n = make_normalize<T, Result>(norm, to, sum);
    std::int64_t const rows = to.mean.numel();
    memory::note_operands(q, name, in.residual, in.branch, sum, to.out);
    detail::ResidualNormalize<T, Normalize<T, Result>> const rule{
        sum.as<T>(), in.residual.as<T>(), in.branch.as<T>(), detail::DropoutFactors(in.drop), n};
    auto const team = [&](auto threads) {
      constexpr int size = decltype(threads)::value;
      using Norm = detail::TeamNormalize<T, size, Result>;
      return detail::TeamResidualNormalize<T, size, Norm>{
          rule.sum, rule.residual, rule.branch, rule.factors, in_registers<size>(n, rows)};
    };
    if (!detail::run_in_registers<T>(q, name, n.columns, team, rule.sum, rule.residual, rule.branch,
                                     n.out, n.gamma, n.beta))
      detail::parallel_rows(q, name, rows, rule);
  });
}

std::int64_t layer_norm_backward_workspace(Queue const& q, std::int64_t rows,
                                           std::int64_t columns) {
  std::int64_t const chunks = detail::norm_chunks(rows, detail::norm_rows_per_chunk(rows));
  if (q.kind() != memory::QueueKind::stream) return 2 * columns * chunks;
  return 2 * columns *
         std::max(chunks, detail::norm_chunks(rows, detail::rows_per_norm_chunk(rows)));
}

void layer_norm_backward(Queue& q, LayerNormGradients const& to, LayerNormBackwardInput const& from,
                         TensorView workspace) {
  std::int64_t const rows = from.mean.numel(), columns = from.gamma.numel();
  TESSERA_EXPECT(rows * columns == from.in.numel() && to.din.view.numel() == from.in.numel() &&
                 from.dout.numel() == from.in.numel());
  TESSERA_EXPECT(workspace.numel() >= layer_norm_backward_workspace(q, rows, columns));
  TESSERA_EXPECT(to.copy.empty() || to.copy.numel() == from.in.numel());
  float* const parts = workspace.as<float>();
  std::int64_t chunks = 0;
  memory::note_operands(q, "tessera::kernels::layer_norm_backward", from.dout, from.in, to.din.view,
                        to.din.mode == WriteMode::add ? to.din.view : TensorView{}, to.copy);
  Dtype const copied = to.copy.empty() ? from.in.dtype() : to.copy.dtype();
  with_types(from.in.dtype(), copied, "layer_norm_backward", [&](auto tag, auto copy) {
    chunks = backward_rows<typename decltype(tag)::type, typename decltype(copy)::type>(q, to, from,
                                                                                        parts);
  });
  with_type(to.dgamma.dtype(), "layer_norm_backward", [&](auto tag) {
    backward_parameters<typename decltype(tag)::type>(q, to, {parts, chunks, columns});
  });
}

}  // namespace tessera::kernels
