/// Oracle: the sampler's plan, read without workers.
#include "tessera/data/sampling/batch_loader.hpp"

#include <gtest/gtest.h>

#include <numeric>

namespace tessera::data {
namespace {

constexpr std::int64_t length = 5;

/// Sequence i holds the ids 5 i to 5 i + 4.
TokenSequences sequences(std::int64_t count) {
  std::vector<std::int32_t> ids(static_cast<std::size_t>(count * length));
  std::iota(ids.begin(), ids.end(), 0);
  return {std::move(ids), length};
}

Sampler sampler(std::int64_t accumulation_steps) {
  SamplerConfig config;
  config.samples = 53;
  config.ranks = 2;
  config.micro_batch = 2;
  config.accumulation_steps = accumulation_steps;
  return Sampler(config);
}

void expect_plan(BatchLoader& loader, Sampler& plan, std::int64_t step) {
  auto const batches = loader.load(step);
  EXPECT_EQ(loader.first_of(step, Rank(0)).indices, plan.micro_batches(step, Rank(0)).front());
  auto const expected = plan.micro_batches(step, Rank(1));
  ASSERT_EQ(batches.size(), expected.size());
  for (std::size_t i = 0; i < batches.size(); ++i) {
    ASSERT_EQ(batches[i].samples, std::ssize(expected[i]));
    ASSERT_EQ(std::ssize(batches[i].ids), batches[i].samples * length);
    for (std::size_t k = 0; k < batches[i].ids.size(); ++k)
      EXPECT_EQ(batches[i].ids[k],
                expected[i][k / length] * length + static_cast<std::int64_t>(k % length));
  }
}

class Workers : public ::testing::TestWithParam<int> {};

TEST_P(Workers, GiveEveryStepOfEveryEpoch) {
  for (std::int64_t const accumulation_steps : {1, 4}) {
    Sampler plan = sampler(accumulation_steps);
    BatchLoader loader(sequences(53), plan, Rank(1), {GetParam(), 3});
    for (std::int64_t step = 0; step < plan.total_steps(); ++step) expect_plan(loader, plan, step);
  }
}

TEST_P(Workers, BeginAnywhereAndJump) {  // a resume; a step that is taken again
  Sampler plan = sampler(2);
  BatchLoader loader(sequences(53), plan, Rank(1), {GetParam(), 2});
  for (std::int64_t const step : {7, 8, 8, 3, 20, 4, 5, 6}) expect_plan(loader, plan, step);
}

INSTANTIATE_TEST_SUITE_P(Counts, Workers, ::testing::Values(0, 1, 4));

TEST(BatchLoader, LoadsEnoughStepsAhead) {
  auto const ahead = [](int workers, std::int64_t factor, std::int64_t accumulation_steps) {
    return BatchLoader(sequences(53), sampler(accumulation_steps), Rank(0), {workers, factor})
        .steps_ahead();
  };
  EXPECT_EQ(ahead(0, 2, 1), 0);
  EXPECT_EQ(ahead(2, 2, 1), 4);
  EXPECT_EQ(ahead(2, 3, 4), 2);
  EXPECT_EQ(ahead(1, 1, 8), 1);
}

TEST(BatchLoader, StopsWhileItLoads) {
  for (int i = 0; i < 200; ++i) {
    BatchLoader loader(sequences(53), sampler(1), Rank(0), {3, 2});
    loader.load(0);
  }
}

}  // namespace
}  // namespace tessera::data
