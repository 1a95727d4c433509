#include "tessera/kernels/gemm/float8.hpp"

#include <cmath>
#include <limits>

#include "fake_device.hpp"
#include "fiber_thread_block.hpp"
#include "float8_reference.hpp"
#include "gemm/float8_rules.hpp"
#include "reference.hpp"

namespace tessera::kernels::test {
namespace {

TESSERA_KERNEL_SUITE(Float8Kernels);

constexpr Float8 formats[] = {Float8::e4m3, Float8::e5m2};

std::vector<float> floats_of(Array const& x) {
  std::vector<float> out;
  for (std::int64_t i = 0; i < x.numel(); ++i) out.push_back(static_cast<float>(x.get(i)));
  return out;
}

float value_of(std::uint8_t code, Float8 format) {
  if (format == Float8::e4m3) {
    float8_e4m3 x;
    x.bits = code;
    return x;
  }
  float8_e5m2 x;
  x.bits = code;
  return x;
}

/// A scale, the copies of a matrix, and space around them that nothing may write.
struct Cast {
  std::int64_t rows, columns, padded = float8_padded(rows);
  std::vector<float> scale{std::vector<float>(Float8Scale::numel, std::nanf(""))};
  std::vector<std::uint8_t> plain = filled(rows * columns), transposed = filled(columns * padded);
  static constexpr std::size_t margin = 64;

  static std::vector<std::uint8_t> filled(std::int64_t n) {
    return std::vector<std::uint8_t>(static_cast<std::size_t>(n) + 2 * margin, 0xAA);
  }
  TensorView plain_view() { return {plain.data() + margin, Dtype::uint8, {rows, columns}}; }
  TensorView transposed_view() {
    return {transposed.data() + margin, Dtype::uint8, {columns, padded}};
  }
  Float8Scale scale_view() { return {{scale.data(), Dtype::fp32, {Float8Scale::numel}}}; }

  void run(Queue& q, Float8 format, ConstTensorView in) {
    Array workspace(Dtype::fp32, {float8_scale_workspace(in.numel())});
    float8_scale(q, scale_view(), format, in, workspace.view());
    float8_cast(q, format, {plain_view(), transposed_view()}, in, scale_view());
    q.record().wait("the cast", std::chrono::seconds(60));
  }
  void expect(Array const& in, Float8 format) const {
    auto const x = floats_of(in);
    double const s = tessera::test::float8_scale(x, format);
    EXPECT_EQ(scale[0], s);
    EXPECT_EQ(scale[Float8Scale::reciprocal_at], 1.0 / s);
    for (std::int64_t r = 0; r < padded; ++r)
      for (std::int64_t c = 0; c < columns; ++c) {
        std::uint8_t const t = transposed[margin + static_cast<std::size_t>(c * padded + r)];
        if (r >= rows) {
          ASSERT_EQ(t, 0) << "padding of column " << c;
          continue;
        }
        std::uint8_t const p = plain[margin + static_cast<std::size_t>(r * columns + c)];
        double const want = tessera::test::float8_nearest(
            static_cast<double>(x[static_cast<std::size_t>(r * columns + c)]) * s, format);
        ASSERT_EQ(value_of(p, format), want) << r << ", " << c;
        ASSERT_EQ(t, p) << r << ", " << c;
      }
    for (auto const* copy : {&plain, &transposed})
      for (std::size_t i = 0; i < margin; ++i)
        ASSERT_TRUE((*copy)[i] == 0xAA && (*copy)[copy->size() - 1 - i] == 0xAA) << "outside";
  }
};

/// Numbers of many binades, so that some become subnormal in fp8.
Array spread(Dtype dtype, std::int64_t rows, std::int64_t columns, int exponent) {
  Array out(dtype, {rows, columns});
  out.randomize(5);
  for (std::int64_t i = 0; i < out.numel(); ++i)
    out.set(i, std::ldexp(out.get(i), exponent - static_cast<int>(i * 7 % 13)));
  return out;
}

void check(Queue& q, Dtype dtype) {
  for (auto const& [rows, columns] :
       {std::pair{1, 16}, {3, 48}, {16, 64}, {64, 128}, {70, 80}, {130, 272}})
    for (Float8 const format : formats)
      for (int const exponent : {-9, 0, 6}) {
        Array const in = spread(dtype, rows, columns, exponent);
        Cast cast{rows, columns};
        cast.run(q, format, in.view());
        cast.expect(in, format);
      }
}

TEST_P(Float8Kernels, ScaleAndCastOnTheHost) { check(*queue, dtype); }
TEST_P(Float8Kernels, ScaleAndCastOnAStream) {
  tessera::test::FakeDevice device;
  check(*memory::make_stream_queue("compute"), dtype);
}

TEST_P(Float8Kernels, OnlyOneCopyIsWrittenWhereOneIsWanted) {
  Array const in = spread(dtype, 20, 32, 0);
  Cast both{20, 32}, one{20, 32};
  both.run(*queue, Float8::e4m3, in.view());
  one.scale = both.scale;
  float8_cast(*queue, Float8::e4m3, {one.plain_view(), {}}, in.view(), one.scale_view());
  EXPECT_EQ(one.plain, both.plain);
  EXPECT_EQ(one.transposed, Cast::filled(32 * 32));
  float8_cast(*queue, Float8::e4m3, {{}, one.transposed_view()}, in.view(), one.scale_view());
  EXPECT_EQ(one.transposed, both.transposed);
}

TEST_P(Float8Kernels, ValuesThatAreNotFiniteMakeTheCopyNaN) {
  for (double const bad : {std::nan(""), HUGE_VAL, -HUGE_VAL})
    for (Float8 const format : formats) {
      Array in = spread(dtype, 4, 16, 0);
      in.set(37, bad);
      Cast cast{4, 16};
      cast.run(*queue, format, in.view());
      EXPECT_TRUE(std::isnan(cast.scale[0]) && std::isnan(cast.scale[Float8Scale::reciprocal_at]));
      for (std::size_t i = 0; i < 64; ++i)
        EXPECT_TRUE(std::isnan(value_of(cast.plain[Cast::margin + i], format)));
    }
}

TEST_P(Float8Kernels, ZerosHaveTheScaleOne) {
  Array in(dtype, {2, 16});
  for (std::int64_t i = 0; i < in.numel(); ++i) in.set(i, i % 2 ? -0.0 : 0.0);
  Cast cast{2, 16};
  cast.run(*queue, Float8::e5m2, in.view());
  EXPECT_EQ(cast.scale[0], 1.0f);
  EXPECT_EQ(cast.scale[Float8Scale::reciprocal_at], 1.0f);
}

/// A device's thread blocks, in two orders of their threads.
TEST_P(Float8Kernels, TilesInThreadBlocks) {
  Array const in = spread(dtype, 100, 144, 2);
  detail::with_type(dtype, "test", [&](auto tag) {
    using T = typename decltype(tag)::type;
    Cast host{100, 144};
    host.run(*queue, Float8::e4m3, in.view());
    for (auto const order : {FiberOrder::ascending, FiberOrder::descending})
      for (bool const packed : {true, false}) {
        Cast block{100, 144};
        detail::Float8Tile<float8_e4m3, T, 256> const rule{
            static_cast<std::uint8_t*>(block.plain_view().data()),
            static_cast<std::uint8_t*>(block.transposed_view().data()),
            in.view().template as<T>(),
            host.scale.data(),
            100,
            144,
            block.padded,
            packed};
        FiberThreadBlock<256>(order).run(rule, rule.teams());
        EXPECT_EQ(block.plain, host.plain);
        EXPECT_EQ(block.transposed, host.transposed);
      }
  });
}

TEST(Float8Scale, IsExactAtEveryBinade) {
  for (Float8 const format : formats) {
    std::uint32_t const largest =
        format == Float8::e4m3 ? float8_e4m3::largest_bits : float8_e5m2::largest_bits;
    for (int exponent = -100; exponent < 127; ++exponent)
      for (float const fraction : {1.0f, 1.5f, 1.75f, std::nextafter(1.75f, 2.0f), 1.999f}) {
        float const most = std::ldexp(fraction, exponent);
        EXPECT_EQ(detail::float8_scale_of(most, largest),
                  tessera::test::float8_scale({most}, format))
            << most;
      }
    // beyond: scale and reciprocal stay normal numbers
    EXPECT_EQ(detail::float8_scale_of(std::numeric_limits<float>::denorm_min(), largest), 0x1p126f);
  }
}

}  // namespace
}  // namespace tessera::kernels::test
