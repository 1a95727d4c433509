#include "tessera/kernels/attention/key_value_cache.hpp"

#include "launch/element_types.hpp"
#include "launch/launch.hpp"
#include "launch/pack.hpp"
#include "launch/strided_heads.hpp"

namespace tessera::kernels {
namespace {

template <class T>
struct Append {
  T* cache;
  std::int64_t batch_stride, position_stride, head_stride;
  detail::StridedHeads<T const> rows;
  std::int32_t const* lengths;
  std::int64_t queries;
  int heads, head_dim;

  KOKKOS_FUNCTION T* target(std::int64_t row, int head) const {
    std::int64_t const b = row / queries, s = lengths[b] - queries + row % queries;
    return cache + b * batch_stride + s * position_stride + head * head_stride;
  }
  /// Host: all heads of one position.
  KOKKOS_FUNCTION void operator()(std::int64_t row) const {
    for (int h = 0; h < heads; ++h) {
      T* const to = target(row, h);
      T const* const from = rows.at(row, h);
#pragma omp simd
      for (int c = 0; c < head_dim; ++c) to[c] = from[c];
    }
  }
};

/// Device: N elements per index.
template <class T, int N>
struct AppendPack {
  Append<T> rule;
  int packs;  ///< per head
  KOKKOS_FUNCTION void operator()(std::int64_t index) const {
    std::int64_t const head = index / packs, row = head / rule.heads;
    int const h = static_cast<int>(head % rule.heads), c = static_cast<int>(index % packs) * N;
    detail::RowPack<T, N> same;
    same.read(rule.rows.at(row, h) + c);
    same.write(rule.target(row, h) + c);
  }
};

template <int N, class T>
void run_in_packs(Queue& q, char const* name, std::int64_t rows, Append<T> const& rule) {
  int const packs = rule.head_dim / N;
  detail::parallel_for(q, name, rows * rule.heads * packs, AppendPack<T, N>{rule, packs});
}

}  // namespace

void append_to_cache(Queue& q, CacheShape const& shape, CacheView const& cache,
                     ConstHeadsView const& rows, ConstTensorView lengths) {
  TESSERA_EXPECT(lengths.numel() == shape.batch);
  detail::with_type(shape.dtype, "append_to_cache", [&](auto tag) {
    using T = typename decltype(tag)::type;
    char const* const name = "tessera::kernels::append_to_cache";
    std::int64_t const count = shape.batch * shape.queries,
                       head_stride = detail::head_stride_of(cache.head_stride, shape.head_dim);
    Append<T> const rule{static_cast<T*>(cache.base),
                         cache.batch_stride,
                         cache.position_stride,
                         head_stride,
                         detail::strided_heads<T>(rows, shape.head_dim),
                         lengths.as<std::int32_t>(),
                         shape.queries,
                         shape.heads,
                         shape.head_dim};
    if (!detail::on_device(q)) return detail::launch_on_host(q, name, count, rule);
    constexpr int pack = detail::pack_of<T>;
    if (detail::in_packs<pack>(shape.head_dim, rule.cache, rule.rows.base) &&
        detail::strides_in_packs<pack>(rule.batch_stride, rule.position_stride, rule.head_stride,
                                       rule.rows.row_stride, rule.rows.head_stride))
      return run_in_packs<pack>(q, name, count, rule);
    run_in_packs<1>(q, name, count, rule);
  });
}

}  // namespace tessera::kernels
