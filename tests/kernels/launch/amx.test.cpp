#include "launch/amx.hpp"

#include <fstream>

#include "reference.hpp"

namespace tessera::kernels::detail {
namespace {

TEST(Amx, IsUsedWhereLinuxShowsIt) {
  std::ifstream file("/proc/cpuinfo");
  std::string const text((std::istreambuf_iterator<char>(file)), {});
  bool const shown =
      text.find(" amx_bf16") != std::string::npos && text.find(" avx512_bf16") != std::string::npos;
#ifdef TESSERA_AMX_TILES
  EXPECT_EQ(has_amx_bf16(), shown);
#else
  EXPECT_FALSE(has_amx_bf16()) << "shown: " << shown;
#endif
}

TEST(Amx, CanBeForbidden) {
  bool const before = has_amx_bf16();
  {
    WithoutAmx const outer, inner;
    EXPECT_FALSE(has_amx_bf16());
  }
  EXPECT_EQ(has_amx_bf16(), before);
}

#ifdef TESSERA_AMX_TILES

/// Small integers, whose sums are exact.
std::vector<float> integers(std::int64_t n, std::uint64_t seed) {
  Philox const random{seed, 1};
  std::vector<float> out(static_cast<std::size_t>(n));
  for (std::size_t i = 0; i < out.size(); ++i)
    out[i] = std::floor(17.0f * random.uniform(i)) - 8.0f;
  return out;
}

/// 32 rows of c against a serial sum; what is beyond n columns must stay.
template <bool Add>
void check(int n, int k) {
  std::int64_t const a_stride = k + 32, b_stride = n + 16, c_stride = n + 16;
  auto const a = integers(amx_block * a_stride, 1), b = integers(k * b_stride, 2),
             before = integers(amx_block * c_stride, 3);
  std::vector<bfloat16> rows(a.begin(), a.end());
  std::vector<std::uint32_t> pairs(static_cast<std::size_t>(k / 2 * b_stride));
  auto const at = [](std::int64_t i) { return static_cast<std::size_t>(i); };
  for (std::int64_t i = 0; i < k; ++i)
    for (std::int64_t j = 0; j < b_stride; ++j)
      pairs[at(i / 2 * b_stride + j)] |=
          static_cast<std::uint32_t>(bfloat16(b[at(i * b_stride + j)]).bits) << (16 * (i % 2));
  auto c = before;
  {
    AmxTiles const tiles;
    multiply_amx_rows<Add>({c.data(), c_stride}, {rows.data(), a_stride}, {pairs.data(), b_stride},
                           n, k);
  }
  for (std::int64_t i = 0; i < amx_block; ++i)
    for (std::int64_t j = 0; j < c_stride; ++j) {
      float want = Add || j >= n ? before[at(i * c_stride + j)] : 0.0f;
      for (std::int64_t l = 0; j < n && l < k; ++l)
        want += a[at(i * a_stride + l)] * b[at(l * b_stride + j)];
      ASSERT_EQ(c[at(i * c_stride + j)], want) << i << ", " << j << " of " << n << " x " << k;
    }
}

TEST(Amx, ProductsEqualTheSerialSumAndWriteOnlyTheirColumns) {
  if (!has_amx_bf16()) GTEST_SKIP() << "this processor has no AMX";
  for (int n : {16, 32, 48, 128})
    for (int k : {0, 32, 64, 96}) {
      check<false>(n, k);
      check<true>(n, k);
    }
}

#endif

}  // namespace
}  // namespace tessera::kernels::detail
