#include "interchange/detail/element_conversion.hpp"

#include <gtest/gtest.h>

#include <cmath>
#include <limits>
#include <vector>

#include "tessera/core/error.hpp"

namespace tessera::checkpoint::detail {
namespace {

template <class T>
void expect_rounds(Dtype dtype) {
  std::vector<float> const values{
      0.0f,      -0.0f, 1.0f,     1.00390625f, 1.01171875f,
      -3.14159f, 1e-8f, 65504.0f, 1e30f,       std::numeric_limits<float>::infinity()};
  auto const n = static_cast<std::int64_t>(values.size());
  std::vector<T> stored(values.size());
  from_fp32(values.data(), n, dtype, stored.data());
  std::vector<float> back(values.size());
  to_fp32(stored.data(), n, dtype, back.data());
  for (std::size_t i = 0; i < values.size(); ++i) {
    EXPECT_EQ(back[i], static_cast<float>(T(values[i]))) << values[i];
    EXPECT_EQ(std::signbit(back[i]), std::signbit(values[i])) << values[i];
  }
}

TEST(ElementConversion, RoundsToNearestEven) {
  expect_rounds<float>(Dtype::fp32);
  expect_rounds<bfloat16>(Dtype::bf16);
  expect_rounds<float16>(Dtype::fp16);
}

TEST(ElementConversion, NanStaysNan) {
  float const nan = std::numeric_limits<float>::quiet_NaN();
  for (Dtype const dtype : {Dtype::bf16, Dtype::fp16}) {
    std::uint16_t stored = 0;
    float back = 0;
    from_fp32(&nan, 1, dtype, &stored);
    to_fp32(&stored, 1, dtype, &back);
    EXPECT_TRUE(std::isnan(back)) << name_of(dtype);
  }
}

TEST(ElementConversion, ReadsDoubles) {
  double const values[] = {1.0 / 3, 1e300, -2.5};
  float out[3];
  to_fp32(values, 3, Dtype::fp64, out);
  EXPECT_EQ(out[0], static_cast<float>(1.0 / 3));
  EXPECT_TRUE(std::isinf(out[1]));
  EXPECT_EQ(out[2], -2.5f);
}

TEST(ElementConversion, ModelsAreWrittenInFloatingPointTypes) {
  for (Dtype const dtype : {Dtype::fp32, Dtype::bf16, Dtype::fp16})
    EXPECT_NO_THROW(check_model_dtype(dtype));
  EXPECT_THROW(check_model_dtype(Dtype::int32), ConfigError);
}

}  // namespace
}  // namespace tessera::checkpoint::detail
