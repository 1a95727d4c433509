#include "gemm/tile_product.hpp"

#include "reference.hpp"

namespace tessera::kernels::detail {
namespace {

std::vector<float> numbers(std::size_t n, std::uint64_t seed) {
  Philox const random{seed, 1};
  std::vector<float> out(n);
  for (std::size_t i = 0; i < n; ++i) out[i] = 2.0f * random.uniform(i) - 1.0f;
  return out;
}

/// c[i, j] of tile_rows rows: sum over k of a b, against a serial sum in double.
template <Operand A>
void check(int n, int k, ProductMode mode) {
  std::int64_t const stride = n + tile_lanes, a_stride = A == Operand::plain ? k + 3 : tile_rows;
  auto const size = [](std::int64_t x) { return static_cast<std::size_t>(x); };
  auto const a = numbers(size(std::max<std::int64_t>(tile_rows, k) * a_stride), 1),
             b = numbers(size(k * stride), 2), before = numbers(size(tile_rows * stride), 3);
  auto c = before;
  multiply_rows<A>({c.data(), stride}, {a.data(), a_stride}, {b.data(), stride}, {n, k}, mode);
  for (std::int64_t i = 0; i < tile_rows; ++i)
    for (std::int64_t j = 0; j < stride; ++j) {
      auto const at = size(i * stride + j);
      double want = j < n && mode == ProductMode::overwrite ? 0.0 : before[at];
      for (std::int64_t l = 0; j < n && l < k; ++l)
        want += static_cast<double>(
                    a[size(A == Operand::plain ? i * a_stride + l : l * a_stride + i)]) *
                b[size(l * stride + j)];
      ASSERT_NEAR(c[at], want, 1e-6 * (1 + k)) << i << ", " << j << " of " << n << " x " << k;
    }
}

TEST(TileProduct, EqualsTheSerialSumAndWritesOnlyItsColumns) {
  for (int n : {tile_lanes, 2 * tile_lanes, 3 * tile_lanes, 64})
    for (int k : {1, 7, 64})
      for (auto const mode : {ProductMode::overwrite, ProductMode::add}) {
        check<Operand::plain>(n, k, mode);
        check<Operand::transposed>(n, k, mode);
      }
}

TEST(TileProduct, TransposesEveryElement) {
  for (int rows : {tile_lanes, 64})
    for (int columns : {tile_lanes, 2 * tile_lanes, 128}) {
      auto const in = numbers(static_cast<std::size_t>(rows * (columns + 1)), 4);
      std::vector<float> out(static_cast<std::size_t>(columns * rows));
      transpose_tile(out.data(), rows, {in.data(), columns + 1}, rows, columns);
      for (int r = 0; r < rows; ++r)
        for (int c = 0; c < columns; ++c)
          ASSERT_EQ(out[static_cast<std::size_t>(c * rows + r)],
                    in[static_cast<std::size_t>(r * (columns + 1) + c)]);
    }
}

}  // namespace
}  // namespace tessera::kernels::detail
