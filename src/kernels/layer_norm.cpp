#include "tessera/kernels/layer_norm.hpp"

#include "detail/column_sums_launch.hpp"
#include "detail/convert.hpp"
#include "detail/dropout.hpp"
#include "detail/launch.hpp"
#include "detail/layer_norm_device.hpp"

namespace tessera::kernels {
namespace {

using detail::for_chunks;
using detail::load;
using detail::store;
using detail::with_type;

template <class T>
struct Normalize {
  T* out;
  float *mean, *rstd;
  T const *in, *gamma, *beta;
  std::int64_t columns;
  float epsilon;

  /// Mean first, then the sum of squared deviations: no cancellation. The row stays in the nearest
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
    T* const y = out + row * columns;
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

template <class T>
struct ResidualNormalize {
  T* sum;
  T const *residual, *branch;
  detail::DropoutFactors factors;
  Normalize<T>
      normalize;  ///< its input is `sum`, as rounded to T: what the backward pass will read

  template <class Team>
  KOKKOS_FUNCTION void operator()(Team const& team, std::int64_t row) const {
    std::int64_t const at = row * normalize.columns;
    T* const y = sum + at;
    T const *const a = residual + at, *const b = branch + at;
    for_chunks(team, normalize.columns, [&](std::int64_t c, int n) {
      float factor[Team::chunk];
      if (factors.active()) {
        factors.fill(static_cast<std::uint64_t>(at + c), n, factor);
      } else {
        for (int i = 0; i < n; ++i) factor[i] = 1.0f;
      }
#pragma omp simd
      for (int i = 0; i < n; ++i) store(y[c + i], load(a[c + i]) + load(b[c + i]) * factor[i]);
    });
    normalize(team, row);
  }
};

/// Rows are taken in blocks; each block leaves its part of dgamma and dbeta in the workspace
/// [blocks, 2, C].
std::int64_t rows_per_block(std::int64_t rows) {
  constexpr std::int64_t most_blocks = 128, fewest_rows = 16;
  return std::max(fewest_rows, (rows + most_blocks - 1) / most_blocks);
}
std::int64_t blocks_of(std::int64_t rows) {
  return (rows + rows_per_block(rows) - 1) / rows_per_block(rows);
}

/// With x^ = (x - mean) rstd and h = dout gamma:  din = rstd (h - mean(h) - x^ mean(h x^)),  dgamma
/// = sum dout x^,  dbeta = sum dout.
template <class T>
struct NormalizeBackward {
  T* din;
  T const *dout, *in;
  float const *mean, *rstd;
  T const* gamma;
  float* parts;
  std::int64_t rows, columns, block;
  bool accumulate;

  template <class Team>
  KOKKOS_FUNCTION void operator()(Team const& team, std::int64_t index) const {
    float* const dgamma = parts + 2 * index * columns;
    float* const dbeta = dgamma + columns;
    for_chunks(team, columns, [&](std::int64_t c, int n) {
      for (int i = 0; i < n; ++i) dgamma[c + i] = dbeta[c + i] = 0.0f;
    });
    std::int64_t const end = (index + 1) * block < rows ? (index + 1) * block : rows;
    for (std::int64_t row = index * block; row < end; ++row) one_row(team, row, dgamma, dbeta);
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
    });
  }
};

/// On the host: adds the blocks' parts in their order.
template <class G>
struct AddParts {
  G *dgamma, *dbeta;
  float const* parts;
  std::int64_t columns, blocks;
  bool accumulate;

  KOKKOS_FUNCTION void add(G* out, float const* part, std::int64_t begin, int width) const {
    float sums[64];
    for (int i = 0; i < width; ++i) sums[i] = accumulate ? load(out[begin + i]) : 0.0f;
    for (std::int64_t b = 0; b < blocks; ++b) {
#pragma omp simd
      for (int i = 0; i < width; ++i) sums[i] += part[2 * b * columns + begin + i];
    }
    for (int i = 0; i < width; ++i) store(out[begin + i], sums[i]);
  }
  KOKKOS_FUNCTION void operator()(std::int64_t, std::int64_t begin, std::int64_t end) const {
    add(dgamma, parts, begin, static_cast<int>(end - begin));
    add(dbeta, parts + columns, begin, static_cast<int>(end - begin));
  }
};

template <class T>
Normalize<T> make_normalize(TensorView out, TensorView mean, TensorView rstd, ConstTensorView in,
                            ConstTensorView gamma, ConstTensorView beta, float epsilon) {
  TESSERA_EXPECT(beta.numel() == gamma.numel() && out.numel() == in.numel());
  TESSERA_EXPECT(mean.numel() * gamma.numel() == in.numel() && rstd.numel() == mean.numel());
  return {out.as<T>(),   mean.as<float>(), rstd.as<float>(), in.as<T>(),
          gamma.as<T>(), beta.as<T>(),     gamma.numel(),    epsilon};
}

/// The same for a team that keeps rows in registers.
template <int Threads, class T>
detail::TeamNormalize<T, Threads> in_registers(Normalize<T> const& n, std::int64_t rows) {
  return {n.out, n.mean, n.rstd, n.in, n.gamma, n.beta, rows, n.columns, n.epsilon};
}

/// Runs make(threads), a rule for teams that keep rows in registers, where a CUDA device, the width
/// and the addresses allow it.
template <class T, class Make, class... Data>
bool run_in_registers([[maybe_unused]] Queue& q, [[maybe_unused]] char const* name,
                      [[maybe_unused]] std::int64_t columns, [[maybe_unused]] Make const& make,
                      [[maybe_unused]] Data const*... data) {
#ifdef KOKKOS_ENABLE_CUDA
  if (memory::on_cuda(q) && detail::in_packs<detail::pack_of<T>>(columns, data...))
    return detail::with_norm_team<T>(columns, [&](auto threads) {
      auto const rule = make(threads);
      detail::parallel_teams<decltype(threads)::value>(q, name, rule.teams(), rule);
    });
#endif
  return false;
}

}  // namespace

void layer_norm(Queue& q, TensorView out, TensorView mean, TensorView rstd, ConstTensorView in,
                ConstTensorView gamma, ConstTensorView beta, float epsilon) {
  with_type(in.dtype(), "layer_norm", [&](auto tag) {
    using T = typename decltype(tag)::type;
    char const* const name = "tessera::kernels::layer_norm";
    Normalize<T> const rule = make_normalize<T>(out, mean, rstd, in, gamma, beta, epsilon);
    auto const team = [&](auto threads) {
      return in_registers<decltype(threads)::value>(rule, mean.numel());
    };
    if (!run_in_registers<T>(q, name, rule.columns, team, rule.out, rule.in, rule.gamma, rule.beta))
      detail::parallel_rows(q, name, mean.numel(), rule);
  });
}

void residual_layer_norm(Queue& q, TensorView sum, TensorView out, TensorView mean, TensorView rstd,
                         ConstTensorView residual, ConstTensorView branch, Dropout const& drop,
                         ConstTensorView gamma, ConstTensorView beta, float epsilon) {
  TESSERA_EXPECT(sum.numel() == residual.numel() && sum.numel() == branch.numel());
  with_type(sum.dtype(), "residual_layer_norm", [&](auto tag) {
    using T = typename decltype(tag)::type;
    char const* const name = "tessera::kernels::residual_layer_norm";
    Normalize<T> const norm = make_normalize<T>(out, mean, rstd, sum, gamma, beta, epsilon);
    ResidualNormalize<T> const rule{sum.as<T>(), residual.as<T>(), branch.as<T>(),
                                    detail::DropoutFactors(drop), norm};
    auto const team = [&](auto threads) {
      constexpr int size = decltype(threads)::value;
      return detail::TeamResidualNormalize<T, size>{rule.sum, rule.residual, rule.branch,
                                                    rule.factors,
                                                    in_registers<size>(norm, mean.numel())};
    };
    if (!run_in_registers<T>(q, name, norm.columns, team, rule.sum, rule.residual, rule.branch,
                             norm.out, norm.gamma, norm.beta))
      detail::parallel_rows(q, name, mean.numel(), rule);
  });
}

std::int64_t layer_norm_backward_workspace(Queue const& q, std::int64_t rows,
                                           std::int64_t columns) {
  std::int64_t const blocks = blocks_of(rows);
  if (q.kind() != memory::QueueKind::stream) return 2 * columns * blocks;
  return 2 * columns *
         std::max(blocks, (rows + detail::rows_per_norm_chunk(rows) - 1) /
                              detail::rows_per_norm_chunk(rows));
}

void layer_norm_backward(Queue& q, TensorView din, bool accumulate_din, TensorView dgamma,
                         TensorView dbeta, bool accumulate_parameters, ConstTensorView dout,
                         ConstTensorView in, ConstTensorView mean, ConstTensorView rstd,
                         ConstTensorView gamma, TensorView workspace) {
  std::int64_t const rows = mean.numel(), columns = gamma.numel();
  TESSERA_EXPECT(rows * columns == in.numel() && din.numel() == in.numel() &&
                 dout.numel() == in.numel());
  TESSERA_EXPECT(workspace.numel() >= layer_norm_backward_workspace(q, rows, columns));
  float* const parts = workspace.as<float>();
  std::int64_t blocks = blocks_of(rows);
  with_type(in.dtype(), "layer_norm_backward", [&](auto tag) {
    using T = typename decltype(tag)::type;
    char const* const name = "tessera::kernels::layer_norm_backward";
    NormalizeBackward<T> const rule{
        din.as<T>(),      dout.as<T>(),         in.as<T>(),    mean.as<float>(),
        rstd.as<float>(), gamma.as<T>(),        parts,         rows,
        columns,          rows_per_block(rows), accumulate_din};
    auto const team = [&](auto threads) {
      detail::TeamNormalizeBackward<T, decltype(threads)::value> const out{
          rule.din,      rule.dout, rule.in, rule.mean, rule.rstd,
          rule.gamma,    parts,     rows,    columns,   detail::rows_per_norm_chunk(rows),
          accumulate_din};
      blocks = out.teams();
      return out;
    };
    if (!run_in_registers<T>(q, name, columns, team, rule.din, rule.dout, rule.in, rule.gamma))
      detail::parallel_rows(q, name, blocks, rule);
  });
  with_type(dgamma.dtype(), "layer_norm_backward", [&](auto tag) {
    using G = typename decltype(tag)::type;
    char const* const name = "tessera::kernels::layer_norm_backward_parameters";
    if (q.kind() == memory::QueueKind::stream)
      return detail::add_column_parts<G>(
          q, name, {dgamma.as<G>(), dbeta.as<G>(), columns, accumulate_parameters}, parts, blocks,
          2 * columns);
    AddParts<G> const rule{dgamma.as<G>(), dbeta.as<G>(), parts,
                           columns,        blocks,        accumulate_parameters};
    detail::launch_on_host(q, name, (columns + 63) / 64,
                           detail::CallWithChunk<AddParts<G>>{rule, columns, 64});
  });
}

}  // namespace tessera::kernels
