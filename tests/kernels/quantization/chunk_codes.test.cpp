/// Codes against a serial reference in double precision.
#include "tessera/kernels/quantization/chunk_codes.hpp"

#include <gtest/gtest.h>

#include <cmath>
#include <limits>
#include <vector>

#include "reference.hpp"

namespace tessera::kernels::test {
namespace {

using Bytes = std::vector<std::uint8_t>;

struct Case {
  Dtype dtype;
  QuantizedFormat format;
  std::int64_t numel, count;
};
void PrintTo(Case const& c, std::ostream* out) {
  *out << name_of(c.dtype) << " " << c.format.bits << " " << c.numel << " " << c.count;
}

class ChunkCodes : public ::testing::TestWithParam<Case> {
 protected:
  ChunkCodes() { values_.randomize(7, 3.0); }

  TensorView bytes(Bytes& b) {
    return {b.data(), Dtype::uint8, {static_cast<std::int64_t>(b.size())}};
  }
  QuantizedRegions regions() const {
    return {GetParam().format, GetParam().numel, GetParam().count};
  }
  Bytes encoded(Encoding const& encoding = {}) {
    Bytes out(static_cast<std::size_t>(regions().bytes()));
    encode_chunks(*queue_, bytes(out), values_.view(), regions(), encoding);
    return out;
  }
  std::int64_t all() const { return GetParam().numel * GetParam().count; }
  /// Half a code of the chunk of element @p i.
  double bound(std::int64_t i) const {
    std::int64_t const region = i / GetParam().numel, in_region = i % GetParam().numel,
                       chunk = GetParam().format.chunk, begin = in_region / chunk * chunk,
                       end = std::min(begin + chunk, GetParam().numel);
    double largest = 0.0;
    for (std::int64_t k = begin; k < end; ++k)
      largest = std::max(largest, std::abs(values_.get(region * GetParam().numel + k)));
    return largest / (GetParam().format.bits == 8 ? 127 : 7) * 0.5000001 *
           (1.0 + 1.0 / 128);  // a scale is rounded up to bf16
  }

  std::unique_ptr<Queue> queue_ = memory::make_inline_queue("compute");
  Array values_{GetParam().dtype, {all()}};
};

/// The nearest code has an error of half a code, so no other code is nearer; and there are no bytes
/// but scales and codes.
TEST_P(ChunkCodes, AreTheNearestOfEachChunk) {
  auto const& p = GetParam();
  std::int64_t const chunks = (p.numel + p.format.chunk - 1) / p.format.chunk;
  EXPECT_LT(code_bytes(p.format, p.numel) - (chunks * 2 + p.numel * p.format.bits / 8), 16);
  auto codes = encoded();
  Array decoded(Dtype::fp32, {all()});
  decode_chunks(*queue_, decoded.view(), bytes(codes), regions());
  for (std::int64_t i = 0; i < all(); ++i)
    ASSERT_LE(std::abs(decoded.get(i) - values_.get(i)), bound(i)) << i;
}

TEST_P(ChunkCodes, RegionsGoToTheirPlaces) {
  auto const& p = GetParam();
  if (p.count % 2 != 0) return;
  auto const in_order = encoded(), placed = encoded({.inner = 2});
  auto const each = static_cast<std::ptrdiff_t>(code_bytes(p.format, p.numel));
  for (std::int64_t r = 0; r < p.count; ++r) {
    auto const at = r % 2 * (p.count / 2) + r / 2;
    EXPECT_TRUE(std::equal(in_order.begin() + r * each, in_order.begin() + (r + 1) * each,
                           placed.begin() + at * each))
        << r;
  }
}

TEST_P(ChunkCodes, SumsAddTheDecodedParts) {
  auto const& p = GetParam();
  constexpr int parts = 3;
  Bytes all_parts;
  std::vector<double> want(static_cast<std::size_t>(all()), 0.5);
  for (int part = 0; part < parts; ++part) {
    values_.randomize(static_cast<std::uint64_t>(part) + 20, 1.0 + part);
    auto codes = encoded();
    Array decoded(Dtype::fp32, {all()});
    decode_chunks(*queue_, decoded.view(), bytes(codes), regions());
    for (std::int64_t i = 0; i < all(); ++i) want[static_cast<std::size_t>(i)] += decoded.get(i);
    all_parts.insert(all_parts.end(), codes.begin(), codes.end());
  }
  Array sum(Dtype::fp32, {all()});
  sum.randomize(1, 0.0, 0.5);
  sum_chunks(*queue_, sum.view(), bytes(all_parts), regions(), parts, memory::WriteMode::add);
  for (std::int64_t i = 0; i < all(); ++i)
    ASSERT_NEAR(sum.get(i), want[static_cast<std::size_t>(i)], 1e-5) << i;
  Array rounded(p.dtype, {all()});
  sum_chunks(*queue_, rounded.view(), bytes(all_parts), regions(), parts,
             memory::WriteMode::overwrite);
  for (std::int64_t i = 0; i < all(); ++i)
    ASSERT_NEAR(rounded.get(i), want[static_cast<std::size_t>(i)] - 0.5,
                p.dtype == Dtype::fp32 ? 1e-5 : 0.1);
}

/// What a step loses is part of the values of the next: the mean over steps becomes exact.
TEST_P(ChunkCodes, ErrorsReturn) {
  Array error(GetParam().dtype, {all()});
  error.randomize(1, 0.0, 0.0);
  std::vector<double> sum(static_cast<std::size_t>(all()));
  constexpr int steps = 64;
  for (int t = 0; t < steps; ++t) {
    auto codes = encoded({.error = error.view().data(), .keep = 0.0});
    Array decoded(Dtype::fp32, {all()});
    decode_chunks(*queue_, decoded.view(), bytes(codes), regions());
    for (std::int64_t i = 0; i < all(); ++i) sum[static_cast<std::size_t>(i)] += decoded.get(i);
  }
  for (std::int64_t i = 0; i < all(); ++i)
    ASSERT_LE(std::abs(sum[static_cast<std::size_t>(i)] / steps - values_.get(i)),
              4 * bound(i) / steps + 1e-3)
        << i;
}

INSTANTIATE_TEST_SUITE_P(
    All, ChunkCodes,
    ::testing::Values(Case{Dtype::fp32, {8, 2048}, 4096, 2}, Case{Dtype::bf16, {8, 2048}, 5024, 1},
                      Case{Dtype::fp16, {8, 64}, 96, 6}, Case{Dtype::fp32, {4, 512}, 1536, 4},
                      Case{Dtype::bf16, {4, 256}, 288, 2}, Case{Dtype::fp32, {4, 32}, 32, 1}));

TEST(ChunkCode, OfAChunkThatIsNotFiniteIsNaN) {
  auto const queue = memory::make_inline_queue("compute");
  QuantizedRegions const regions{{8, 32}, 64, 1};
  for (float const bad :
       {std::numeric_limits<float>::infinity(), std::numeric_limits<float>::quiet_NaN()}) {
    std::vector<float> values(64, 1.0f), error(64, 0.25f), out(64);
    values[3] = bad;
    Bytes codes(static_cast<std::size_t>(regions.bytes()));
    TensorView const bytes(codes.data(), Dtype::uint8, {regions.bytes()});
    encode_chunks(*queue, bytes, {values.data(), Dtype::fp32, {64}}, regions,
                  {.error = error.data(), .keep = 0.5});
    decode_chunks(*queue, {out.data(), Dtype::fp32, {64}}, bytes, regions);
    EXPECT_TRUE(std::isnan(out[0]) && std::isnan(out[31]));
    EXPECT_NEAR(out[32], 1.25f, 0.5 * 1.25 / 126);
    EXPECT_EQ(error[3], 0.0f);
  }
}

TEST(ChunkCode, OfZerosAndTinyNumbersIsZero) {
  auto const queue = memory::make_inline_queue("compute");
  QuantizedRegions const regions{{4, 32}, 64, 1};
  std::vector<float> values(64, 0.0f), out(64, 1.0f);
  values[40] = 1e-41f;
  Bytes codes(static_cast<std::size_t>(regions.bytes()));
  TensorView const bytes(codes.data(), Dtype::uint8, {regions.bytes()});
  encode_chunks(*queue, bytes, {values.data(), Dtype::fp32, {64}}, regions);
  decode_chunks(*queue, {out.data(), Dtype::fp32, {64}}, bytes, regions);
  EXPECT_EQ(out, std::vector<float>(64, 0.0f));
}

}  // namespace
}  // namespace tessera::kernels::test
