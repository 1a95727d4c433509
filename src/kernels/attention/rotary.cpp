#include "tessera/kernels/attention/rotary.hpp"

#include "launch/element_types.hpp"
#include "launch/launch.hpp"
#include "launch/pack.hpp"
#include "launch/strided_heads.hpp"

namespace tessera::kernels::detail {
namespace {

template <class T>
struct Rotate {
  StridedHeads<T> out;
  StridedHeads<T const> in;
  float const *cos, *sin;  ///< [positions, half]
  std::int32_t const *first_of_row, *each;
  std::int64_t first, sequence;
  int heads, head_dim, half;
  float sign;  ///< of the angles

  KOKKOS_FUNCTION std::int64_t position(std::int64_t row) const {
    if (each != nullptr) return first + each[row];
    return first + row % sequence + (first_of_row != nullptr ? first_of_row[row / sequence] : 0);
  }

  /// Host: all heads of (b, t).
  KOKKOS_FUNCTION void operator()(std::int64_t row) const {
    std::int64_t const angle = position(row) * half;
    float const *const c = cos + angle, *const s = sin + angle;
    for (int h = 0; h < heads; ++h) {
      T* const y = out.at(row, h);
      T const* const x = in.at(row, h);
      int const n = half;
      float const factor = sign;
#pragma omp simd
      for (int i = 0; i < n; ++i) {
        float const a = load(x[i]), b = load(x[i + n]), sine = factor * s[i];
        store(y[i], a * c[i] - b * sine);
        store(y[i + n], b * c[i] + a * sine);
      }
      if (y == x) continue;
#pragma omp simd
      for (int i = 2 * n; i < head_dim; ++i) y[i] = x[i];
    }
  }

  /// N pairs from pair i on of a head.
  template <int N>
  KOKKOS_FUNCTION void pairs(std::int64_t row, int head, int i) const {
    T const* const x = in.at(row, head) + i;
    T* const y = out.at(row, head) + i;
    RowPack<T, N> lower, upper, to_lower, to_upper;
    float c[N], s[N];
    lower.read(x);
    upper.read(x + half);
    std::int64_t const angle = position(row) * half + i;
    read_floats(c, cos + angle);
    read_floats(s, sin + angle);
    TESSERA_UNROLL
    for (int k = 0; k < N; ++k) {
      float const a = lower.get(k), b = upper.get(k), sine = sign * s[k];
      to_lower.set(k, a * c[k] - b * sine);
      to_upper.set(k, b * c[k] + a * sine);
    }
    to_lower.write(y);
    to_upper.write(y + half);
  }
};

/// Device: N pairs, or a copy of N elements beyond the rotated ones, per index.
template <class T, int N>
struct RotatePack {
  Rotate<T> rule;
  int pairs, packs;  ///< packs of pairs per head, and with those that are copied

  KOKKOS_FUNCTION void operator()(std::int64_t index) const {
    int const at = static_cast<int>(index % packs);
    std::int64_t const head = index / packs, row = head / rule.heads;
    int const h = static_cast<int>(head % rule.heads);
    if (at < pairs) return rule.template pairs<N>(row, h, at * N);
    std::int64_t const column = 2 * rule.half + (at - pairs) * N;
    RowPack<T, N> same;
    same.read(rule.in.at(row, h) + column);
    same.write(rule.out.at(row, h) + column);
  }
};

}  // namespace
}  // namespace tessera::kernels::detail

namespace tessera::kernels {
namespace {

void check(RotaryShape const& shape) {
  TESSERA_VALIDATE(
      shape.rotary_dim > 0 && shape.rotary_dim % 2 == 0 && shape.rotary_dim <= shape.head_dim,
      ConfigError, "rotary embeddings of ", shape.rotary_dim, " of ", shape.head_dim,
      " elements of a head: the number must be even, positive and at most the width of a head");
}

/// Whether heads at these strides, halves and ends consist of packs of N elements.
template <int N, class T>
bool heads_in_packs(detail::Rotate<T> const& r) {
  return detail::strides_in_packs<N>(r.in.row_stride, r.in.head_stride, r.out.row_stride,
                                     r.out.head_stride, r.half) &&
         detail::in_packs<N>(r.head_dim, r.in.base, r.out.base, r.cos, r.sin);
}

template <int N, class T>
void rotate_packs(Queue& q, char const* name, std::int64_t rows, detail::Rotate<T> const& rule) {
  bool const in_place = rule.out.base == rule.in.base;
  int const pairs = rule.half / N, copies = in_place ? 0 : (rule.head_dim - 2 * rule.half) / N;
  detail::parallel_for(q, name, rows * rule.heads * (pairs + copies),
                       detail::RotatePack<T, N>{rule, pairs, pairs + copies});
}

}  // namespace

void rotate_heads(Queue& q, Rotation const& rotation, HeadsView const& out,
                  ConstHeadsView const& in, RotaryDirection direction) {
  RotaryShape const& shape = rotation.shape;
  RotaryTables const& tables = rotation.tables;
  RotaryPositions const& positions = rotation.positions;
  check(shape);
  int const half = shape.rotary_dim / 2;
  TESSERA_EXPECT(
      tables.cos.numel() == tables.sin.numel() &&
      (!positions.each.empty() || tables.cos.numel() >= (positions.first + shape.sequence) * half));
  TESSERA_EXPECT(positions.first_of_row.empty() || positions.first_of_row.numel() == shape.batch);
  TESSERA_EXPECT(
      positions.each.empty() ||
      (positions.first_of_row.empty() && positions.each.numel() == shape.batch * shape.sequence));
  detail::with_type(shape.dtype, "rotate_heads", [&](auto tag) {
    using T = typename decltype(tag)::type;
    char const* const name = "tessera::kernels::rotate_heads";
    std::int64_t const rows = shape.batch * shape.sequence;
    detail::Rotate<T> const rule{
        detail::strided_heads<T>(out, shape.head_dim),
        detail::strided_heads<T>(in, shape.head_dim),
        tables.cos.as<float>(),
        tables.sin.as<float>(),
        positions.first_of_row.empty() ? nullptr : positions.first_of_row.as<std::int32_t>(),
        positions.each.empty() ? nullptr : positions.each.as<std::int32_t>(),
        positions.first,
        shape.sequence,
        shape.heads,
        shape.head_dim,
        half,
        direction == RotaryDirection::forward ? 1.0f : -1.0f};
    if (q.kind() != memory::QueueKind::stream) return detail::launch_on_host(q, name, rows, rule);
    constexpr int pack = detail::pack_of<T>;
    if (heads_in_packs<pack>(rule)) return rotate_packs<pack>(q, name, rows, rule);
    rotate_packs<1>(q, name, rows, rule);
  });
}

}  // namespace tessera::kernels
