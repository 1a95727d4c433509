#include "launch/amx.hpp"

#ifdef TESSERA_AMX_TILES
#include "attention/bf16_tiles.hpp"
#endif
#include "reference.hpp"

namespace tessera::kernels::detail {
namespace {

#ifdef TESSERA_AMX_TILES

/// Element i has the bits i.
std::vector<bfloat16> counting(int n) {
  std::vector<bfloat16> out(static_cast<std::size_t>(n));
  for (std::size_t i = 0; i < out.size(); ++i) out[i].bits = static_cast<std::uint16_t>(i);
  return out;
}

constexpr int rows = 64, columns = 96, stride = 128;

TEST(Bf16Tiles, PairsOfRowsAndOfColumns) {
  auto const in = counting(rows * stride);
  auto const bits = [](int r, int c) { return static_cast<std::uint32_t>(r * stride + c); };
  std::vector<std::uint32_t> by_rows(rows / 2 * stride), by_columns(columns / 2 * rows);
  pair_rows(by_rows.data(), stride, {in.data(), stride}, rows, columns);
  pair_columns(by_columns.data(), rows, {in.data(), stride}, rows, columns);
  for (int r = 0; r < rows; ++r)
    for (int c = 0; c < columns; ++c) {
      ASSERT_EQ(by_rows[static_cast<std::size_t>(r / 2 * stride + c)],
                bits(r / 2 * 2, c) | bits(r / 2 * 2 + 1, c) << 16);
      ASSERT_EQ(by_columns[static_cast<std::size_t>(c / 2 * rows + r)],
                bits(r, c / 2 * 2) | bits(r, c / 2 * 2 + 1) << 16);
    }
}

TEST(Bf16Tiles, TransposesEveryElement) {
  auto const in = counting(rows * stride);
  std::vector<bfloat16> out(columns * rows);
  transpose_bf16(out.data(), rows, {in.data(), stride}, rows, columns);
  for (int r = 0; r < rows; ++r)
    for (int c = 0; c < columns; ++c)
      ASSERT_EQ(out[static_cast<std::size_t>(c * rows + r)].bits, r * stride + c);
}

TEST(Bf16Tiles, CopiesRowsInsideTheSequence) {
  auto const in = counting(7 * 40);
  HeadRows<bfloat16 const> const from{in.data(), 40, 20, 20, 7};
  std::vector<bfloat16> tile(4 * 32, bfloat16(1.0f));
  copy_rows(tile.data(), 32, from, {0, 5, 1, 4});
  for (int r = 0; r < 4; ++r)
    for (int c = 0; c < 32; ++c)
      ASSERT_EQ(tile[static_cast<std::size_t>(r * 32 + c)].bits,
                r < 2 && c < 20 ? (5 + r) * 40 + 20 + c : 0);
}

TEST(Bf16Tiles, RoundsAsBfloat16) {
  if (!has_amx_bf16()) GTEST_SKIP() << "this processor has no bf16 instructions";
  Philox const random{1, 2};
  for (std::uint64_t round = 0; round < 1000; ++round) {
    TileVector first, second;
    for (int i = 0; i < tile_lanes; ++i) {
      auto const at = round * 32 + static_cast<std::uint64_t>(i);
      first[i] = std::exp2(40.0f * random.uniform(at) - 20.0f);
      second[i] = i == 3 ? 0.0f : -std::exp2(200.0f * random.uniform(at + 16) - 100.0f);
    }
    auto const lower_upper = round_to_bf16(first, second), pairs = round_pairs(first, second);
    for (int i = 0; i < tile_lanes; ++i) {
      ASSERT_EQ(lower_upper[i], bfloat16::round(first[i]));
      ASSERT_EQ(lower_upper[tile_lanes + i], bfloat16::round(second[i]));
      ASSERT_EQ(pairs[2 * i], bfloat16::round(first[i]));
      ASSERT_EQ(pairs[2 * i + 1], bfloat16::round(second[i]));
    }
  }
}

TEST(Bf16Tiles, ExponentialIsThatOfDouble) {
  for (int i = 0; i < 200'000; ++i) {
    TileVector const x = TileVector{} + static_cast<float>(-i) * 5e-4f;
    double const want = x[0] < -87.33f ? 0.0 : std::exp(static_cast<double>(x[0]));
    ASSERT_NEAR(exp_below_0(x)[7], want, 1.2e-7 * want) << x[0];
  }
  auto const of = [](float x) { return exp_below_0(TileVector{} + x)[0]; };
  EXPECT_EQ(of(-std::numeric_limits<float>::infinity()), 0.0f);
  EXPECT_EQ(of(0.0f), 1.0f);
  EXPECT_TRUE(std::isnan(of(std::numeric_limits<float>::quiet_NaN())));
}

TEST(Bf16Tiles, OnlySeenKeysStay) {
  TileVector const v = TileVector{} + 2.0f;
  for (int begin = 0; begin <= 40; ++begin)
    for (int end = 0; end <= 40; ++end) {
      auto const got = where_seen(v, {begin, end}, 16, -1.0f);
      for (int i = 0; i < tile_lanes; ++i)
        ASSERT_EQ(got[i], 16 + i >= begin && 16 + i < end ? 2.0f : -1.0f);
    }
}

TEST(Bf16Tiles, SpansArePaddedToProducts) {
  EXPECT_EQ(amx_span(0, 0, 64, 1000).keys, 32);
  EXPECT_EQ(amx_span(32, 0, 128, 40).keys, 40);
  EXPECT_EQ(amx_span(32, 0, 128, 40).padded, 64);
  EXPECT_EQ(amx_span(512, 0, 128, 1000).padded, 128);
  EXPECT_LE(amx_span(0, 64, 64, 1000).keys, 0);
}

#else

TEST(Bf16Tiles, AreNotInThisBuild) { EXPECT_FALSE(has_amx_bf16()); }

#endif

}  // namespace
}  // namespace tessera::kernels::detail
