#include "tessera/kernels/gemm/float8.hpp"

#include "gemm/float8_rules.hpp"
#include "tessera/core/rounding.hpp"

namespace tessera::kernels {
namespace {

/// Calls @p f with the Tag of a format.
template <class F>
void with_format(Float8 format, F&& f) {
  if (format == Float8::e4m3)
    f(detail::Tag<float8_e4m3>{});
  else
    f(detail::Tag<float8_e5m2>{});
}

std::int64_t tiles_of(std::int64_t numel) { return ceil_divide(numel, detail::float8_scale_tile); }

template <class F8, class T>
void cast_tiles(Queue& q, Float8Copies const& out, ConstTensorView in, Float8Scale const& scale) {
  detail::with_team_size<256>(q, [&](auto threads) {
    constexpr int team = decltype(threads)::value;
    detail::Float8Tile<F8, T, team> const rule{
        static_cast<std::uint8_t*>(out.rows.data()),
        static_cast<std::uint8_t*>(out.transposed.data()),
        in.as<T>(),
        scale.values.as<float>(),
        in.dim(0),
        in.dim(1),
        out.transposed.empty() ? in.dim(0) : float8_padded(in.dim(0)),
        detail::in_packs<detail::pack_of<T>>(in.dim(1), in.as<T>())};
    detail::parallel_teams<team>(q, "tessera::kernels::float8_cast", rule.teams(), rule);
  });
}

}  // namespace

std::int64_t float8_scale_workspace(std::int64_t numel) { return tiles_of(numel); }

void float8_scale(Queue& q, Float8Scale const& scale, Float8 format, ConstTensorView in,
                  TensorView workspace) {
  std::int64_t const tiles = tiles_of(in.numel());
  TESSERA_EXPECT(workspace.numel() >= tiles && scale.values.numel() == Float8Scale::numel);
  float* const partial = workspace.as<float>();
  detail::with_type(in.dtype(), "float8_scale", [&](auto tag) {
    using T = typename decltype(tag)::type;
    detail::parallel_rows(q, "tessera::kernels::float8_largest", tiles,
                          detail::LargestOfTile<T>{partial, in.as<T>(), in.numel(),
                                                   detail::in_packs<4>(0, in.as<T>())});
  });
  with_format(format, [&](auto tag) {
    using F8 = typename decltype(tag)::type;
    detail::parallel_rows(
        q, "tessera::kernels::float8_scale", 1,
        detail::ScaleOfLargest{scale.values.as<float>(), partial, tiles, F8::largest_bits});
  });
}

void float8_cast(Queue& q, Float8 format, Float8Copies const& out, ConstTensorView in,
                 Float8Scale const& scale) {
  TESSERA_EXPECT(in.rank() == 2 && in.dim(1) % float8_multiple == 0);
  TESSERA_EXPECT(out.rows.empty() || out.rows.numel() == in.numel());
  TESSERA_EXPECT(out.transposed.empty() ||
                 out.transposed.numel() == in.dim(1) * float8_padded(in.dim(0)));
  with_format(format, [&](auto to) {
    detail::with_type(in.dtype(), "float8_cast", [&](auto from) {
      cast_tiles<typename decltype(to)::type, typename decltype(from)::type>(q, out, in, scale);
    });
  });
}

}  // namespace tessera::kernels
