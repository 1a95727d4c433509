#include "tessera/kernels/quantization/sign_codes.hpp"

#include <gtest/gtest.h>

#include <cmath>
#include <vector>

#include "tessera/kernels/elementwise/gradient_statistics.hpp"

namespace tessera::kernels::test {
namespace {

using Floats = std::vector<float>;

Floats values_of(std::int64_t numel, int seed) {
  Floats out;
  for (std::int64_t i = 0; i < numel; ++i)
    out.push_back(static_cast<float>(std::sin(0.7 * static_cast<double>(i) + seed)) + 0.1f);
  if (numel > 2) out[1] = 0.0f, out[2] = -0.0f;
  return out;
}

struct Coded {
  std::vector<std::uint32_t> words;
  Floats errors;
  float scale = 0.0f;
};

Coded encoded(Floats const& values) {
  auto const queue = memory::make_inline_queue("compute");
  auto const numel = static_cast<std::int64_t>(values.size());
  auto const words = static_cast<std::size_t>((numel + signs_per_word - 1) / signs_per_word);
  Coded out{std::vector<std::uint32_t>(words, 0xffffffffu), values};
  double sums[2] = {};
  gradient_statistics(*queue, sums, {{values.data(), numel}}, Dtype::fp32);
  sign_scale(*queue, {&out.scale}, sums, numel);
  encode_signs(*queue, out.words.data(), out.errors.data(), numel, &out.scale);
  return out;
}

double sign_of(float value) { return value >= 0.0f ? 1.0 : -1.0; }

TEST(SignCodes, MatchADoubleReferenceForEverySize) {
  auto const queue = memory::make_inline_queue("compute");
  for (std::int64_t const numel : {1, 7, 31, 32, 33, 64, 1000, 1025}) {
    auto const values = values_of(numel, 3);
    auto const coded = encoded(values);
    double squares = 0.0;
    for (float const x : values) squares += static_cast<double>(x) * x;
    double const scale = std::sqrt(squares / static_cast<double>(numel));
    EXPECT_NEAR(coded.scale, scale, 1e-7 * scale) << numel;
    Floats decoded(values.size());
    decode_signs(*queue, decoded.data(), numel, coded.words.data(), &coded.scale);
    for (std::size_t i = 0; i < values.size(); ++i) {
      EXPECT_EQ(decoded[i], static_cast<float>(sign_of(values[i])) * coded.scale) << i;
      EXPECT_EQ(coded.errors[i], values[i] - decoded[i]) << i;
    }
  }
}

TEST(SignCodes, BitsPastTheLastElementAreZero) {
  EXPECT_EQ(encoded({1.0f, -1.0f, 0.0f, -0.0f, 2.0f}).words, (std::vector<std::uint32_t>{0b11101}));
}

TEST(SignCodes, ScaleOfNothingIsZeroAndEveryCopyGetsIt) {
  auto const queue = memory::make_inline_queue("compute");
  double const sums[2] = {9.0, 0.0};
  Floats scales(6, -1.0f);
  sign_scale(*queue, {scales.data(), 8, 3}, sums, 4);
  EXPECT_EQ(scales, (Floats{1.5f, -1.0f, 1.5f, -1.0f, 1.5f, -1.0f}));
  sign_scale(*queue, {scales.data(), 8, 1}, sums, 0);
  EXPECT_EQ(scales[0], 0.0f);
}

/// Three ranks' words and scales, one behind the other as in a message.
TEST(SignCodes, MeanOfRanksIsAddedInTheirOrder) {
  auto const queue = memory::make_inline_queue("compute");
  constexpr std::int64_t numel = 45, words = 2, ranks = 3, message = words + 1;
  std::vector<std::uint32_t> messages(message * ranks);
  Floats sums = values_of(numel, 9);
  std::vector<double> want(sums.begin(), sums.end());
  for (std::int64_t r = 0; r < ranks; ++r) {
    auto const values = values_of(numel, static_cast<int>(r));
    auto const coded = encoded(values);
    *reinterpret_cast<float*>(&messages[static_cast<std::size_t>(r * message)]) = coded.scale;
    std::copy(coded.words.begin(), coded.words.end(), messages.begin() + r * message + 1);
    for (std::size_t i = 0; i < want.size(); ++i) want[i] += coded.scale * sign_of(values[i]) / 3.0;
  }
  add_mean_of_signs(
      *queue, sums.data(), numel,
      {messages.data() + 1, reinterpret_cast<float const*>(messages.data()), message * 4, ranks});
  for (std::size_t i = 0; i < want.size(); ++i) EXPECT_NEAR(sums[i], want[i], 3e-7) << i;
}

}  // namespace
}  // namespace tessera::kernels::test
