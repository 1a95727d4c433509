/// Initial weights: a function of (seed, name, element), with the moments of a normal distribution.
#include <gtest/gtest.h>
#include <omp.h>

#include <algorithm>
#include <cmath>
#include <vector>

#include "tessera/model/decoder/causal_lm.hpp"

namespace {

using tessera::memory::Initializer;
using tessera::memory::ParameterSpec;

ParameterSpec normal(std::string const& name, std::int64_t numel, double stddev) {
  ParameterSpec spec;
  spec.name = name;
  spec.shape = {numel};
  spec.init = {Initializer::Kind::normal, stddev};
  return spec;
}

std::vector<float> values(ParameterSpec const& spec, std::uint64_t seed, std::int64_t first,
                          std::int64_t numel) {
  std::vector<float> out(static_cast<std::size_t>(numel));
  tessera::model::initialize_parameter(spec, seed, first, numel, out.data());
  return out;
}

TEST(Initialize, ValuesDoNotDependOnHowElementsAreDealt) {
  auto const spec = normal("transformer.wte.weight", 1003, 0.02);
  auto const whole = values(spec, 42, 0, 1003);
  for (std::int64_t piece : {1, 2, 3, 5, 64, 501}) {
    for (std::int64_t first = 0; first < 1003; first += piece) {
      auto const part = values(spec, 42, first, std::min<std::int64_t>(piece, 1003 - first));
      ASSERT_TRUE(std::equal(part.begin(), part.end(), whole.begin() + first))
          << "pieces of " << piece << " from " << first;
    }
  }
}

TEST(Initialize, ValuesDoNotDependOnThreads) {
  auto spec = normal("transformer.wte.weight", 100003, 0.02);
  int const before = omp_get_max_threads();
  for (auto const kind : {Initializer::Kind::normal, Initializer::Kind::uniform}) {
    spec.init.kind = kind;
    spec.init.bound = 0.3;
    omp_set_num_threads(1);
    auto const one = values(spec, 42, 7, 99991);
    for (int const threads : {2, 3, 8}) {
      omp_set_num_threads(threads);
      EXPECT_EQ(values(spec, 42, 7, 99991), one) << threads << " threads";
    }
  }
  omp_set_num_threads(before);
}

/// transformers zeroes weight[padding_idx] of an nn.Embedding.
TEST(Initialize, ThePaddingRowIsZero) {
  auto spec = normal("model.embed_tokens.weight", 35, 0.02);
  spec.shape = {7, 5};
  auto expected = values(spec, 42, 0, 35);
  std::fill_n(expected.begin() + 15, 5, 0.0f);
  spec.init.zero_row = 3;
  for (std::int64_t const piece : {35, 17, 4, 1})
    for (std::int64_t first = 0; first < 35; first += piece) {
      auto const part = values(spec, 42, first, std::min<std::int64_t>(piece, 35 - first));
      ASSERT_TRUE(std::equal(part.begin(), part.end(), expected.begin() + first))
          << "pieces of " << piece << " from " << first;
    }
}

TEST(Initialize, SeedsAndNamesHaveTheirOwnValues) {
  auto const base = values(normal("a.weight", 100, 1.0), 42, 0, 100);
  EXPECT_NE(base, values(normal("a.weight", 100, 1.0), 43, 0, 100));
  EXPECT_NE(base, values(normal("b.weight", 100, 1.0), 42, 0, 100));
  EXPECT_EQ(base, values(normal("a.weight", 100, 1.0), 42, 0, 100));
}

TEST(Initialize, NormalHasTheMomentsOfANormalDistribution) {
  constexpr std::int64_t n = 1 << 20;
  constexpr double stddev = 0.02;
  auto const x = values(normal("transformer.h.0.mlp.c_fc.weight", n, stddev), 1, 0, n);
  double moments[5] = {};
  double lag = 0.0;
  for (std::size_t i = 0; i < x.size(); ++i) {
    double const z = static_cast<double>(x[i]) / stddev;
    for (int k = 1; k <= 4; ++k) moments[k] += std::pow(z, k) / n;
    if (i > 0) lag += z * static_cast<double>(x[i - 1]) / stddev / n;
  }
  // five standard errors of each estimate: 1/sqrt(n) times 1, sqrt(2), sqrt(15), sqrt(96), 1
  double const error = 5.0 / std::sqrt(static_cast<double>(n));
  EXPECT_NEAR(moments[1], 0.0, error);
  EXPECT_NEAR(moments[2], 1.0, error * std::sqrt(2.0));
  EXPECT_NEAR(moments[3], 0.0, error * std::sqrt(15.0));
  EXPECT_NEAR(moments[4], 3.0, error * std::sqrt(96.0));
  EXPECT_NEAR(lag, 0.0, error);
}

TEST(Initialize, ZerosAndOnes) {
  auto spec = normal("x", 7, 1.0);
  spec.init.kind = Initializer::Kind::ones;
  EXPECT_EQ(values(spec, 1, 2, 5), std::vector<float>(5, 1.0f));
  spec.init.kind = Initializer::Kind::zeros;
  EXPECT_EQ(values(spec, 1, 0, 7), std::vector<float>(7, 0.0f));
}

}  // namespace
