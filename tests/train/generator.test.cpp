#include "tessera/train/generator.hpp"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <cmath>

#include "small_run.hpp"
#include "tessera/comm/host_collectives.hpp"

namespace tessera::train {
namespace {

using ::testing::ElementsAre;

TEST(DrawToken, FollowsTheDistribution) {
  std::vector<float> const logits{0.0f, 2.0f, 1.0f, 2.0f};
  EXPECT_EQ(draw_token(logits, 0.0, 50, 0.9), 1) << "of equal logits the lower id";
  EXPECT_EQ(draw_token(logits, 1.0, 1, 0.99), 1);
  EXPECT_EQ(draw_token(logits, 1.0, 2, 0.49), 1);
  EXPECT_EQ(draw_token(logits, 1.0, 2, 0.51), 3);
  // cumulative probabilities of 1, 3, 2, 0
  double const sum = 2 * std::exp(2.0) + std::exp(1.0) + 1.0;
  EXPECT_EQ(draw_token(logits, 1.0, 0, std::exp(2.0) / sum - 1e-6), 1);
  EXPECT_EQ(draw_token(logits, 1.0, 0, std::exp(2.0) / sum + 1e-6), 3);
  EXPECT_EQ(draw_token(logits, 1.0, 0, 2 * std::exp(2.0) / sum + 1e-6), 2);
  EXPECT_EQ(draw_token(logits, 1.0, 0, 1.0 - 1e-6), 0);
  EXPECT_EQ(draw_token(logits, 1.0, 3, 1.0), 2) << "top_k leaves the least likely token out";
  EXPECT_EQ(draw_token(logits, 100.0, 0, 0.6), 2) << "a high temperature evens out";
}

struct Generation : ::testing::Test {
  std::vector<std::int32_t> generate(SamplingOptions const& options) {
    return generate_tokens({model, weights, *compute, *comm}, {7}, options);
  }
  test::CountingModel model;
  test::NoWeights weights;
  std::unique_ptr<memory::Queue> compute = memory::make_inline_queue("compute");
  std::unique_ptr<comm::Collectives> comm = comm::make_loopback();
};

TEST_F(Generation, ContinuesThePromptInAWindowOfTheLastPositions) {
  EXPECT_THAT(generate({.max_new_tokens = 5, .temperature = 0.0}),
              ElementsAre(7, 8, 9, 10, 11, 12));
  EXPECT_THAT(model.windows, ElementsAre(1, 2, 3, 4, 4));
}

TEST_F(Generation, StopsAtTheEndOfTheText) {
  EXPECT_THAT(generate({.max_new_tokens = 50, .temperature = 0.0, .end_of_text = 9}),
              ElementsAre(7, 8, 9));
}

TEST_F(Generation, RepeatsForTheSameSeed) {
  SamplingOptions const hot{.max_new_tokens = 20, .temperature = 5.0, .top_k = 0, .seed = 1};
  auto other = hot;
  other.seed = 2;
  auto const first = generate(hot);
  EXPECT_EQ(generate(hot), first);
  EXPECT_NE(generate(other), first);
}

TEST_F(Generation, ShowsEachTokenAndEndsWithWhatTheObserverThrows) {
  std::vector<std::size_t> seen;
  SamplingOptions options{.max_new_tokens = 9, .temperature = 0.0};
  options.after_token = [&](std::vector<std::int32_t> const& tokens) {
    seen.push_back(tokens.size());
    if (tokens.size() == 4) throw std::runtime_error("stop");
  };
  EXPECT_THROW(generate(options), std::runtime_error);
  EXPECT_THAT(seen, ElementsAre(2, 3, 4));
}

TEST(GrowingText, WaitsForTheBytesOfACharacter) {
  GrowingText text;
  EXPECT_EQ(text.grow("a\xEF\xBF\xBD"), "a");
  EXPECT_EQ(text.grow("a\xEF\xBF\xBD\xEF\xBF\xBD"), "");
  EXPECT_EQ(text.grow("a\u20AC b"), "\u20AC b");
  EXPECT_EQ(text.grow("a\u20AC b\xEF\xBF\xBD"), "");
  EXPECT_EQ(text.finish("a\u20AC b\xEF\xBF\xBD"), "\xEF\xBF\xBD");
}

}  // namespace
}  // namespace tessera::train
