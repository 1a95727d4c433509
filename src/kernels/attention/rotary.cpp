#include "tessera/kernels/attention/rotary.hpp"

#include "attention/rotary_rules.hpp"
#include "launch/element_types.hpp"

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
    memory::note_bytes(
        q, name, 2 * sizeof(T) * static_cast<std::size_t>(rows * shape.heads * shape.rotary_dim));
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
    if (!detail::on_device(q)) return detail::launch_on_host(q, name, rows, rule);
    constexpr int pack = detail::pack_of<T>;
    if (heads_in_packs<pack>(rule)) return rotate_packs<pack>(q, name, rows, rule);
    rotate_packs<1>(q, name, rows, rule);
  });
}

}  // namespace tessera::kernels
