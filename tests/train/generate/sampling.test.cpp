#include "tessera/train/generate/sampling.hpp"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <cmath>

#include "tessera/core/config_tree.hpp"

namespace tessera::train {
namespace {

/// Every token's probability.
std::vector<double> probabilities(std::vector<float> const& logits,
                                  std::vector<std::int32_t> const& text,
                                  SamplingOptions const& options) {
  std::vector<double> out(logits.size(), 0.0);
  double sum = 0.0;
  auto const all = candidates(logits, text, options);
  for (auto const& candidate : all) sum += candidate.weight;
  for (auto const& candidate : all)
    out[static_cast<std::size_t>(candidate.token)] = candidate.weight / sum;
  return out;
}

/// tests/oracles/generation.py
TEST(Candidates, AreThoseOfTransformers) {
  auto const stored = ConfigTree::read(TESSERA_TEST_DATA "/train/data/sampling.json");
  std::vector<float> logits;
  std::vector<std::int32_t> text;
  for (auto const& x : stored.at("logits").as_array())
    logits.push_back(static_cast<float>(x.as_double()));
  for (auto const& x : stored.at("tokens").as_array())
    text.push_back(static_cast<std::int32_t>(x.as_int()));
  for (auto const& c : stored.at("cases").as_array()) {
    auto const& s = c.at("settings");
    SamplingOptions const options{.temperature = s.get_double("temperature", 1.0),
                                  .top_k = s.get_int("top_k", 0),
                                  .top_p = s.get_double("top_p", 1.0),
                                  .min_p = s.get_double("min_p", 0.0),
                                  .repetition_penalty = s.get_double("repetition_penalty", 1.0)};
    auto const got = probabilities(logits, text, options);
    auto const& want = c.at("probabilities").as_array();
    ASSERT_EQ(got.size(), want.size());
    for (std::size_t i = 0; i < got.size(); ++i) {
      EXPECT_NEAR(got[i], want[i].as_double(), 2e-7) << s.dump() << ", token " << i;
      EXPECT_EQ(got[i] > 0.0, want[i].as_double() > 0.0) << s.dump() << ", token " << i;
    }
  }
}

TEST(Candidates, AreNeverNone) {
  std::vector<float> const logits{0.0f, 2.0f, 1.0f};
  for (SamplingOptions const& options :
       {SamplingOptions{.top_p = 0.0}, {.min_p = 1.0}, {.top_k = 1}, {.temperature = 0.0}}) {
    auto const all = candidates(logits, {}, options);
    ASSERT_EQ(all.size(), 1u);
    EXPECT_EQ(all[0].token, 1);
  }
}

TEST(DrawToken, FollowsTheDistribution) {
  std::vector<float> const logits{0.0f, 2.0f, 1.0f, 2.0f};
  auto const draw = [&](double temperature, std::int64_t top_k, double uniform) {
    return draw_token(logits, {}, {.temperature = temperature, .top_k = top_k}, uniform);
  };
  EXPECT_EQ(draw(0.0, 50, 0.9), 1) << "of equal logits the lower id";
  EXPECT_EQ(draw(1.0, 1, 0.99), 1);
  EXPECT_EQ(draw(1.0, 2, 0.49), 1);
  EXPECT_EQ(draw(1.0, 2, 0.51), 3);
  // cumulative probabilities of 1, 3, 2, 0
  double const sum = 2 * std::exp(2.0) + std::exp(1.0) + 1.0;
  EXPECT_EQ(draw(1.0, 0, std::exp(2.0) / sum - 1e-6), 1);
  EXPECT_EQ(draw(1.0, 0, std::exp(2.0) / sum + 1e-6), 3);
  EXPECT_EQ(draw(1.0, 0, 2 * std::exp(2.0) / sum + 1e-6), 2);
  EXPECT_EQ(draw(1.0, 0, 1.0 - 1e-6), 0);
  EXPECT_EQ(draw(1.0, 3, 1.0), 2) << "top_k leaves the least likely token out";
  EXPECT_EQ(draw(100.0, 0, 0.6), 2) << "a high temperature evens out";
}

}  // namespace
}  // namespace tessera::train
