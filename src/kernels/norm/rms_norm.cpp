#include "tessera/kernels/norm/rms_norm.hpp"

// The host's traversal: one thread per row or chunk of rows. A device uses it too for heads and for
// rows that do not fit registers; its own traversal is detail/rms_norm_device.hpp.

#include "elementwise/column_sums_launch.hpp"
#include "launch/element_types.hpp"
#include "launch/strided_heads.hpp"
#include "norm/norm_rows.hpp"
#include "norm/rms_norm_device.hpp"
#include "tessera/core/rounding.hpp"

namespace tessera::kernels {
namespace {

using detail::for_chunks;
using detail::load;
using detail::RmsGamma;
using detail::store;
using detail::StridedHeads;
using detail::with_type;
using detail::with_types;

template <class T, class Result>
struct RmsNormalize {
  StridedHeads<Result> out;
  float* rstd;
  StridedHeads<T const> in;
  RmsGamma<T> gamma;
  std::int64_t columns;
  int heads;
  float epsilon;

  template <class Team>
  KOKKOS_FUNCTION void operator()(Team const& team, std::int64_t row) const {
    for (int h = 0; h < heads; ++h)
      normalize(team, out.at(row, h), in.at(row, h), rstd + row * heads + h);
  }

  template <class Team>
  KOKKOS_FUNCTION void normalize(Team const& team, Result* y, T const* x, float* scale) const {
    float squares = 0.0f;
    for_chunks(team, columns, [&](std::int64_t c, int n) {
      float part = 0.0f;
#pragma omp simd reduction(+ : part)
      for (int i = 0; i < n; ++i) part += load(x[c + i]) * load(x[c + i]);
      squares += part;
    });
    float const inverse =
        1.0f / Kokkos::sqrt(team.sum(squares) / static_cast<float>(columns) + epsilon);
    T const* const g = gamma.data;
    float const offset = gamma.offset;
    bool const round_first = gamma.round_first;
    for_chunks(team, columns, [&](std::int64_t c, int n) {
      if (round_first) {
#pragma omp simd
        for (int i = 0; i < n; ++i) {
          T normal;
          store(normal, load(x[c + i]) * inverse);
          store(y[c + i], load(normal) * (offset + load(g[c + i])));
        }
      } else {
#pragma omp simd
        for (int i = 0; i < n; ++i)
          store(y[c + i], load(x[c + i]) * inverse * (offset + load(g[c + i])));
      }
    });
    if (team.rank() == 0) *scale = inverse;
  }
};

/// With x^ = x rstd and h = dout (offset + gamma):  din = rstd (h - x^ mean(h x^)),  dgamma = sum
/// dout x^. Each chunk of rows writes its sums of dgamma to parts [chunks, C].
template <class T, class Copy>
struct RmsNormalizeBackward {
  StridedHeads<T> din;
  StridedHeads<T const> dout, in;
  float const* rstd;
  RmsGamma<T> gamma;
  float* parts;
  std::int64_t rows, columns, chunk;
  int heads;
  bool accumulate;
  Copy* copy;  ///< receives din as well, where rows have one head; or null

  template <class Team>
  KOKKOS_FUNCTION void operator()(Team const& team, std::int64_t index) const {
    float* const dgamma = parts + index * columns;
    for_chunks(team, columns, [&](std::int64_t c, int n) {
      for (int i = 0; i < n; ++i) dgamma[c + i] = 0.0f;
    });
    std::int64_t const end = (index + 1) * chunk < rows ? (index + 1) * chunk : rows;
    for (std::int64_t row = index * chunk; row < end; ++row)
      for (int h = 0; h < heads; ++h) one_part(team, row, h, dgamma);
  }

  template <class Team>
  KOKKOS_FUNCTION void one_part(Team const& team, std::int64_t row, int head, float* dgamma) const {
    T const *const x = in.at(row, head), *const dy = dout.at(row, head), *const g = gamma.data;
    float const offset = gamma.offset, inverse = rstd[row * heads + head];
    float sum = 0.0f;
    for_chunks(team, columns, [&](std::int64_t c, int n) {
      float part = 0.0f;
#pragma omp simd reduction(+ : part)
      for (int i = 0; i < n; ++i)
        part += load(dy[c + i]) * (offset + load(g[c + i])) * (load(x[c + i]) * inverse);
      sum += part;
    });
    float const mean = team.sum(sum) / static_cast<float>(columns);
    T* const dx = din.at(row, head);
    bool const add = accumulate;
    for_chunks(team, columns, [&](std::int64_t c, int n) {
#pragma omp simd
      for (int i = 0; i < n; ++i) {
        float const d = load(dy[c + i]), normal = load(x[c + i]) * inverse;
        float const before = add ? load(dx[c + i]) : 0.0f;
        store(dx[c + i], before + inverse * (d * (offset + load(g[c + i])) - normal * mean));
        dgamma[c + i] += d * normal;
      }
      if (copy) detail::copy_converted(copy + row * columns + c, dx + c, n);
    });
  }
};

template <class T>
StridedHeads<T> rows_of(TensorView view, std::int64_t columns) {
  return {view.as<T>(), columns, columns};
}
template <class T>
StridedHeads<T const> rows_of(ConstTensorView view, std::int64_t columns) {
  return {view.as<T>(), columns, columns};
}

template <class T, class Result>
RmsNormalize<T, Result> make_normalize(RmsNormWeights const& norm, RmsNormOutput const& to,
                                       ConstTensorView in) {
  std::int64_t const columns = norm.gamma.numel();
  TESSERA_EXPECT(to.out.numel() == in.numel() && to.rstd.numel() * columns == in.numel());
  return {rows_of<Result>(to.out, columns),
          to.rstd.as<float>(),
          rows_of<T>(in, columns),
          RmsGamma<T>(norm),
          columns,
          1,
          norm.epsilon};
}

/// Makes the rule of a team that keeps rows in registers.
template <int Threads, class T, class Result>
detail::TeamRmsNormalize<T, Threads, Result> in_registers(RmsNormalize<T, Result> const& n,
                                                          std::int64_t rows) {
  return {n.out.base, n.rstd, n.in.base, n.gamma, rows, n.columns, n.epsilon};
}
template <int Threads, class T, class Copy>
detail::TeamRmsNormalizeBackward<T, Threads, Copy> in_registers(
    RmsNormalizeBackward<T, Copy> const& n) {
  return {n.din.base,   n.dout.base, n.in.base,
          n.rstd,       n.gamma,     n.parts,
          n.rows,       n.columns,   detail::rows_per_norm_chunk(n.rows),
          n.accumulate, n.copy};
}

/// dgamma from the partial sums of the chunks.
template <class T, class Copy>
void add_parts(Queue& q, RmsNormalizeBackward<T, Copy> const& rule, std::int64_t chunks,
               GradientTarget const& dgamma) {
  with_type(dgamma.view.dtype(), "rms_norm_backward", [&](auto tag) {
    using G = typename decltype(tag)::type;
    detail::add_column_parts<G>(
        q, "tessera::kernels::rms_norm_backward_gamma",
        {.first = dgamma.view.as<G>(), .accumulate = dgamma.mode == WriteMode::add},
        {rule.parts, chunks, rule.columns});
  });
}

}  // namespace

void rms_norm(Queue& q, RmsNormWeights const& norm, RmsNormOutput const& to, ConstTensorView in) {
  with_types(in.dtype(), to.out.dtype(), "rms_norm", [&](auto tag, auto result) {
    using T = typename decltype(tag)::type;
    char const* const name = "tessera::kernels::rms_norm";
    auto const rule = make_normalize<T, typename decltype(result)::type>(norm, to, in);
    std::int64_t const rows = to.rstd.numel();
    memory::note_operands(q, name, in, to.out);
    auto const team = [&](auto threads) {
      return in_registers<decltype(threads)::value>(rule, rows);
    };
    if (!detail::run_in_registers<T>(q, name, rule.columns, team, rule.out.base, rule.in.base,
                                     rule.gamma.data))
      detail::parallel_rows(q, name, rows, rule);
  });
}

void residual_rms_norm(Queue& q, RmsNormWeights const& norm, TensorView sum,
                       RmsNormOutput const& to, ResidualBranch const& in) {
  TESSERA_EXPECT(sum.numel() == in.residual.numel() && sum.numel() == in.branch.numel());
  with_types(sum.dtype(), to.out.dtype(), "residual_rms_norm", [&](auto tag, auto result) {
    using T = typename decltype(tag)::type;
    using Result = typename decltype(result)::type;
    char const* const name = "tessera::kernels::residual_rms_norm";
    auto const n = make_normalize<T, Result>(norm, to, sum);
    detail::ResidualNormalize<T, RmsNormalize<T, Result>> const rule{
        sum.as<T>(), in.residual.as<T>(), in.branch.as<T>(), detail::DropoutFactors(in.drop), n};
    std::int64_t const rows = to.rstd.numel();
    memory::note_operands(q, name, in.residual, in.branch, sum, to.out);
    auto const team = [&](auto threads) {
      constexpr int size = decltype(threads)::value;
      using Norm = detail::TeamRmsNormalize<T, size, Result>;
      return detail::TeamResidualNormalize<T, size, Norm>{
          rule.sum, rule.residual, rule.branch, rule.factors, in_registers<size>(n, rows)};
    };
    if (!detail::run_in_registers<T>(q, name, n.columns, team, rule.sum, rule.residual, rule.branch,
                                     n.out.base, n.gamma.data))
      detail::parallel_rows(q, name, rows, rule);
  });
}

std::int64_t rms_norm_backward_workspace(Queue const& q, std::int64_t rows, std::int64_t columns) {
  std::int64_t const chunks = detail::norm_chunks(rows, detail::norm_rows_per_chunk(rows));
  if (q.kind() != memory::QueueKind::stream) return columns * chunks;
  return columns * std::max(chunks, detail::norm_chunks(rows, detail::rows_per_norm_chunk(rows)));
}

void rms_norm_backward(Queue& q, RmsNormWeights const& norm, RmsNormGradients const& to,
                       RmsNormBackwardInput const& from, TensorView workspace) {
  std::int64_t const rows = from.rstd.numel(), columns = norm.gamma.numel();
  TESSERA_EXPECT(rows * columns == from.in.numel() && to.din.view.numel() == from.in.numel() &&
                 from.dout.numel() == from.in.numel() && to.dgamma.view.numel() == columns);
  TESSERA_EXPECT(workspace.numel() >= rms_norm_backward_workspace(q, rows, columns));
  TESSERA_EXPECT(to.copy.empty() || to.copy.numel() == from.in.numel());
  Dtype const copied = to.copy.empty() ? from.in.dtype() : to.copy.dtype();
  with_types(from.in.dtype(), copied, "rms_norm_backward", [&](auto tag, auto copy) {
    using T = typename decltype(tag)::type;
    using Copy = typename decltype(copy)::type;
    RmsNormalizeBackward<T, Copy> const rule{rows_of<T>(to.din.view, columns),
                                             rows_of<T>(from.dout, columns),
                                             rows_of<T>(from.in, columns),
                                             from.rstd.as<float>(),
                                             RmsGamma<T>(norm),
                                             workspace.as<float>(),
                                             rows,
                                             columns,
                                             detail::norm_rows_per_chunk(rows),
                                             1,
                                             to.din.mode == WriteMode::add,
                                             to.copy.empty() ? nullptr : to.copy.as<Copy>()};
    char const* const name = "tessera::kernels::rms_norm_backward";
    memory::note_operands(q, name, from.dout, from.in, to.din.view,
                          to.din.mode == WriteMode::add ? to.din.view : TensorView{}, to.copy);
    std::int64_t chunks = detail::norm_chunks(rows, rule.chunk);
    auto const team = [&](auto threads) {
      auto const out = in_registers<decltype(threads)::value>(rule);
      chunks = out.teams();
      return out;
    };
    if (!detail::run_in_registers<T>(q, name, columns, team, rule.din.base, rule.dout.base,
                                     rule.in.base, rule.gamma.data, rule.copy))
      detail::parallel_rows(q, name, chunks, rule);
    add_parts(q, rule, chunks, to.dgamma);
  });
}

void rms_norm_heads(Queue& q, RmsNormWeights const& norm, HeadNormShape const& shape,
                    HeadNormOutput const& to, ConstHeadsView const& in) {
  TESSERA_EXPECT(norm.gamma.numel() == shape.width &&
                 to.rstd.numel() == shape.positions * shape.heads);
  with_type(shape.dtype, "rms_norm_heads", [&](auto tag) {
    using T = typename decltype(tag)::type;
    RmsNormalize<T, T> const rule{detail::strided_heads<T>(to.out, shape.width),
                                  to.rstd.as<float>(),
                                  detail::strided_heads<T>(in, shape.width),
                                  RmsGamma<T>(norm),
                                  shape.width,
                                  shape.heads,
                                  norm.epsilon};
    detail::parallel_rows(q, "tessera::kernels::rms_norm_heads", shape.positions, rule);
  });
}

void rms_norm_heads_backward(Queue& q, RmsNormWeights const& norm, HeadNormShape const& shape,
                             HeadNormGradients const& to, HeadNormBackwardInput const& from,
                             TensorView workspace) {
  std::int64_t const rows = shape.positions * shape.heads;
  TESSERA_EXPECT(norm.gamma.numel() == shape.width && to.dgamma.view.numel() == shape.width &&
                 from.rstd.numel() == rows);
  TESSERA_EXPECT(workspace.numel() >= rms_norm_backward_workspace(q, rows, shape.width));
  with_type(shape.dtype, "rms_norm_heads_backward", [&](auto tag) {
    using T = typename decltype(tag)::type;
    // as many positions as norm_rows_per_chunk() rows have, so that the workspace suffices
    std::int64_t const chunk = ceil_divide(detail::norm_rows_per_chunk(rows), shape.heads);
    RmsNormalizeBackward<T, T> const rule{detail::strided_heads<T>(to.din, shape.width),
                                          detail::strided_heads<T>(from.dout, shape.width),
                                          detail::strided_heads<T>(from.in, shape.width),
                                          from.rstd.as<float>(),
                                          RmsGamma<T>(norm),
                                          workspace.as<float>(),
                                          shape.positions,
                                          shape.width,
                                          chunk,
                                          shape.heads,
                                          false,
                                          nullptr};
    std::int64_t const chunks = detail::norm_chunks(rule.rows, rule.chunk);
    detail::parallel_rows(q, "tessera::kernels::rms_norm_heads_backward", chunks, rule);
    add_parts(q, rule, chunks, to.dgamma);
  });
}

}  // namespace tessera::kernels
