#include "tessera/kernels/elementwise/elementwise.hpp"

#include "elementwise/column_sums_launch.hpp"
#include "launch/launch.hpp"
#include "tessera/core/rounding.hpp"
#include "tessera/memory/runtime.hpp"

namespace tessera::kernels {
namespace {

using detail::load;
using detail::store;
using detail::with_type;

/// Host traversal (device: detail/column_sums_device.hpp). Sums of up to Width neighboring columns:
/// four rows at a time into a chunk's sums, 128 rows per chunk, the chunks in order.
template <class Out, class In, int Width>
struct ColumnSums {
  Out* out;
  In const* in;
  std::int64_t rows, columns;
  bool accumulate;

  KOKKOS_FUNCTION void add_rows(std::int64_t first, std::int64_t last, std::int64_t column,
                                int width, float* sums) const {
    std::int64_t r = first;
    for (; r + 4 <= last; r += 4) {
      In const* a = in + r * columns + column;
      In const *b = a + columns, *c = b + columns, *d = c + columns;
#pragma omp simd
      for (int i = 0; i < width; ++i)
        sums[i] += (load(a[i]) + load(b[i])) + (load(c[i]) + load(d[i]));
    }
    for (; r < last; ++r) {
      In const* a = in + r * columns + column;
#pragma omp simd
      for (int i = 0; i < width; ++i) sums[i] += load(a[i]);
    }
  }

  KOKKOS_FUNCTION void operator()(std::int64_t, std::int64_t begin, std::int64_t end) const {
    constexpr std::int64_t chunk = 128;
    int const width = static_cast<int>(end - begin);
    float total[Width] = {}, sums[Width];
    for (int i = 0; i < width; ++i) total[i] = accumulate ? load(out[begin + i]) : 0.0f;
    for (std::int64_t r = 0; r < rows; r += chunk) {
      for (int i = 0; i < width; ++i) sums[i] = 0.0f;
      add_rows(r, r + chunk < rows ? r + chunk : rows, begin, width, sums);
      for (int i = 0; i < width; ++i) total[i] += sums[i];
    }
#pragma omp simd
    for (int i = 0; i < width; ++i) store(out[begin + i], total[i]);
  }
};

constexpr char const* bias_gradient_name = "tessera::kernels::bias_gradient";

/// The operands of one call.
template <class Out, class In>
struct Operands {
  Out* out;
  In const* in;
  std::int64_t rows, columns;
  bool accumulate;
};

template <class Out, class In>
void sum_on_host(Queue& q, Operands<Out, In> const& x) {
  constexpr int max_width = 1024;
  // one slice per thread, in full cache lines; a column's sum does not depend on its slice
  std::int64_t const threads = memory::Runtime::threads();
  std::int64_t const slice = (x.columns / threads + 64) / 64 * 64;
  std::int64_t const width = std::min<std::int64_t>(slice, max_width);
  detail::CallWithChunk<ColumnSums<Out, In, max_width>> const rule{
      {x.out, x.in, x.rows, x.columns, x.accumulate}, x.columns, width};
  detail::launch_on_host(q, bias_gradient_name, ceil_divide(x.columns, width), rule);
}

/// Partial sums of row chunks, then their sums; `N` columns per thread.
template <int N, class Out, class In>
void sum_on_device(Queue& q, Operands<Out, In> const& x, float* parts) {
  std::int64_t const chunk = detail::rows_of_column_tile<N>(x.rows, x.columns),
                     chunks = detail::row_chunks(x.rows, chunk);
  detail::with_team_size<detail::column_tile_threads>(q, [&](auto threads) {
    constexpr int team = decltype(threads)::value;
    detail::ColumnTile<float, In, N, team> const rule{{parts}, x.in, x.rows, x.columns, chunk};
    detail::parallel_teams<team>(q, bias_gradient_name, rule.teams(), rule);
  });
  detail::add_column_parts<Out>(q, "tessera::kernels::bias_gradient_chunks",
                                {.first = x.out, .accumulate = x.accumulate},
                                {parts, chunks, x.columns});
}

template <class T>
constexpr int pack = detail::pack_of<T>;

}  // namespace

void bias_gradient(Queue& q, GradientTarget const& dbias, ConstTensorView dout,
                   TensorView workspace) {
  std::int64_t const columns = dbias.view.numel();
  TESSERA_EXPECT(columns == 0 || dout.numel() % columns == 0);
  if (columns == 0) return;
  std::int64_t const rows = dout.numel() / columns;
  bool const on_device = detail::on_device(q);
  memory::note_operands(q, bias_gradient_name, dout);
  TESSERA_EXPECT(!on_device || workspace.numel() >= bias_gradient_workspace(q, rows, columns));
  with_type(dbias.view.dtype(), "bias_gradient", [&](auto to) {
    with_type(dout.dtype(), "bias_gradient", [&](auto from) {
      using Out = typename decltype(to)::type;
      using In = typename decltype(from)::type;
      Operands<Out, In> const x{dbias.view.as<Out>(), dout.as<In>(), rows, columns,
                                dbias.mode == WriteMode::add};
      if (!on_device) return sum_on_host(q, x);
      float* const parts = workspace.as<float>();
      if (detail::in_packs<pack<In>>(columns, x.in)) return sum_on_device<pack<In>>(q, x, parts);
      sum_on_device<1>(q, x, parts);
    });
  });
}

std::int64_t bias_gradient_workspace(Queue const& q, std::int64_t rows, std::int64_t columns) {
  if (q.kind() != memory::QueueKind::stream) return 0;
  // wide strips make the most chunks
  return detail::row_chunks(rows, detail::rows_of_column_tile<pack<bfloat16>>(rows, columns)) *
         columns;
}

}  // namespace tessera::kernels
