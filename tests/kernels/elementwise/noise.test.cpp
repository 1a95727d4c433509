#include "tessera/kernels/elementwise/elementwise.hpp"

#include "reference.hpp"

namespace tessera::kernels::test {
namespace {

TESSERA_KERNEL_SUITE(NoiseKernel);

/// Uniform numbers have mean 0 and variance magnitude^2 / 3.
TEST_P(NoiseKernel, IsUniformAndRepeats) {
  constexpr std::int64_t n = 20000;
  Noise const noise{.magnitude = 0.5f, .numbers = {.seed = 3, .stream = 4}};
  Array data(dtype, {n}), again = data;
  add_noise(*queue, data.view(), noise);
  add_noise(*queue, again.view(), noise);
  EXPECT_TRUE(data == again);
  double sum = 0.0, squares = 0.0;
  for (double const x : data.values()) {
    ASSERT_LE(std::abs(x), 0.5);
    sum += x;
    squares += x * x;
  }
  EXPECT_NEAR(sum / n, 0.0, 0.01);
  EXPECT_NEAR(squares / n, 0.25 / 3.0, 0.002);
}

TEST_P(NoiseKernel, BelongsToTheElementNotToTheBuffer) {
  Noise noise{.magnitude = 0.5f, .numbers = {.seed = 3, .stream = 4}};
  Array whole(dtype, {100}), part(dtype, {40});
  add_noise(*queue, whole.view(), noise);
  noise.numbers.first_element = 60;
  add_noise(*queue, part.view(), noise);
  for (std::int64_t i = 0; i < 40; ++i) ASSERT_EQ(part.get(i), whole.get(60 + i));
  Array other(dtype, {40});
  noise.numbers.stream = 5;
  add_noise(*queue, other.view(), noise);
  EXPECT_FALSE(other == part);
}

TEST_P(NoiseKernel, IsAdded) {
  Array data(Dtype::fp32, {10}), noise_only = data;
  Noise const noise{.magnitude = 0.25f, .numbers = {.seed = 1, .stream = 2, .first_element = 3}};
  for (std::int64_t i = 0; i < 10; ++i) data.set(i, 2.0);
  add_noise(*queue, data.view(), noise);
  add_noise(*queue, noise_only.view(), noise);
  for (std::int64_t i = 0; i < 10; ++i) EXPECT_NEAR(data.get(i), 2.0 + noise_only.get(i), 3e-7);
}

}  // namespace
}  // namespace tessera::kernels::test
