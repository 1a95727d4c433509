#include "tessera/data/sampling/sampler.hpp"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <algorithm>
#include <map>
#include <numeric>

#include "error_of.hpp"
#include "tessera/core/config_tree.hpp"

using namespace tessera::data;
using tessera::ConfigTree;
using ::testing::ElementsAre;
using ::testing::HasSubstr;
using ::testing::IsEmpty;

namespace {

SamplerConfig sequential(std::int64_t samples, int ranks, std::int64_t micro_batch,
                         std::int64_t accumulation_steps = 1) {
  SamplerConfig config;
  config.samples = samples;
  config.ranks = ranks;
  config.micro_batch = micro_batch;
  config.accumulation_steps = accumulation_steps;
  config.order = SampleOrder::sequential;
  return config;
}

std::vector<MicroBatch> batches_of(ConfigTree const& tree) {
  std::vector<MicroBatch> out;
  for (auto const& batch : tree.as_array()) {
    out.emplace_back();
    for (auto const& index : batch.as_array()) out.back().push_back(index.as_int());
  }
  return out;
}

TEST(Sampler, DealsAsAccelerateDoes) {
  ConfigTree const cases = ConfigTree::read(TESSERA_TEST_DATA "/data/vectors/sampler.json");
  ASSERT_GT(cases.size(), 100u);
  for (auto const& expected : cases.as_array()) {
    SCOPED_TRACE(expected.dump());
    SamplerConfig config =
        sequential(expected.at("samples").as_int(), static_cast<int>(expected.at("ranks").as_int()),
                   expected.at("micro_batch").as_int(), expected.at("accumulation_steps").as_int());
    config.epochs = expected.at("epochs").as_double();
    config.last_micro_step =
        expected.at("drop_last").as_bool() ? LastMicroStep::drop : LastMicroStep::fill;
    Sampler sampler(config);
    ASSERT_EQ(sampler.steps_per_epoch(), expected.at("steps_per_epoch").as_int());
    EXPECT_EQ(sampler.total_steps(), expected.at("total_steps").as_int());
    for (std::int64_t step = 0; step < 2 * sampler.steps_per_epoch();
         ++step) {  // the second epoch is like the first
      auto const& ranks =
          expected.at("steps")
              .as_array()[static_cast<std::size_t>(step % sampler.steps_per_epoch())]
              .as_array();
      std::int64_t samples = 0;
      for (int rank = 0; rank < config.ranks; ++rank) {
        auto const dealt = sampler.micro_batches(step, tessera::Rank(rank));
        EXPECT_EQ(dealt, batches_of(ranks[static_cast<std::size_t>(rank)]))
            << "step " << step << " rank " << rank;
        for (auto const& batch : dealt) samples += static_cast<std::int64_t>(batch.size());
      }
      EXPECT_EQ(sampler.samples(step), samples);
    }
  }
}

TEST(Sampler, PositionCountsEpochsAsTheTrainerLogsThem) {
  Sampler const sampler(sequential(21, 2, 2, 4));  // 6 micro-steps: steps of 4 and 2
  EXPECT_EQ(sampler.position(0), (StepPosition{0, 0, 4, 4.0 / 6}));
  EXPECT_EQ(sampler.position(1), (StepPosition{0, 4, 2, 1.0}));
  EXPECT_EQ(sampler.position(2), (StepPosition{1, 0, 4, 1 + 4.0 / 6}));
}

TEST(Sampler, MaxStepsTakesTheEpochsPlace) {
  auto config = sequential(10, 1, 1);
  config.max_steps = 37;
  config.epochs = 0;
  EXPECT_EQ(Sampler(config).total_steps(), 37);
}

/// All samples of a step in the order of their positions, which must not depend on the layout.
std::vector<std::int64_t> samples_of_step(Sampler& sampler, std::int64_t step) {
  std::vector<std::int64_t> out;
  for (std::int64_t k = 0; k < sampler.position(step).micro_steps; ++k)
    for (int rank = 0; rank < sampler.config().ranks; ++rank) {
      auto const batch =
          sampler.micro_batches(step, tessera::Rank(rank))[static_cast<std::size_t>(k)];
      out.insert(out.end(), batch.begin(), batch.end());
    }
  return out;
}

TEST(Sampler, AStepSeesTheSameSamplesOnEveryLayout) {
  auto config = sequential(96, 1, 1, 24);
  config.order = SampleOrder::random;
  Sampler one(config);
  for (int ranks : {2, 3, 4, 6}) {
    for (std::int64_t micro_batch : {1, 2}) {
      config.ranks = ranks;
      config.micro_batch = micro_batch;
      config.accumulation_steps = 24 / (ranks * micro_batch);
      Sampler other(config);
      for (std::int64_t step = 0; step < 8; ++step)
        EXPECT_EQ(samples_of_step(other, step), samples_of_step(one, step));
    }
  }
}

/// Micro-batches by their place in the step, of all ranks.
std::map<std::int64_t, MicroBatch> places_of_step(Sampler& sampler, std::int64_t step) {
  std::map<std::int64_t, MicroBatch> out;
  for (int rank = 0; rank < sampler.config().ranks; ++rank) {
    auto const own = sampler.micro_batches(step, tessera::Rank(rank));
    EXPECT_EQ(static_cast<std::int64_t>(own.size()), sampler.position(step).micro_steps);
    for (std::size_t k = 0; k < own.size(); ++k) {
      auto const row = sampler.first_row(step, static_cast<std::int64_t>(k), tessera::Rank(rank));
      if (own[k].empty()) continue;
      EXPECT_TRUE(out.emplace(row, own[k]).second) << "row " << row << " twice";
    }
  }
  return out;
}

TEST(Sampler, MicroBatchesAreNumberedWithoutTheRanks) {
  using enum SamplerConfig::Numbering;
  for (std::int64_t samples : {1, 5, 16, 37, 63}) {
    for (auto const last : {LastMicroStep::fill, LastMicroStep::drop}) {
      if (last == LastMicroStep::drop && samples < 16) continue;
      auto config = sequential(samples, 1, 2, 8);
      config.order = SampleOrder::random;
      config.last_micro_step = last;
      config.numbering = by_step;
      Sampler one(config);
      for (int ranks : {2, 4, 8}) {
        config.ranks = ranks;
        config.accumulation_steps = 8 / ranks;
        for (auto const numbering : {by_step, by_rank}) {
          config.numbering = numbering;
          Sampler other(config);
          ASSERT_EQ(other.steps_per_epoch(), one.steps_per_epoch());
          for (std::int64_t step = 0; step < 2 * one.steps_per_epoch(); ++step) {
            EXPECT_EQ(places_of_step(other, step), places_of_step(one, step))
                << samples << " samples, " << ranks << " ranks, step " << step;
            EXPECT_EQ(other.samples(step), one.samples(step));
          }
        }
      }
    }
  }
}

TEST(Sampler, ExactDealsEachSampleOnce) {
  for (std::int64_t samples : {1, 5, 21, 24}) {
    for (int ranks : {1, 2, 4}) {
      auto config = sequential(samples, ranks, 2, 3);
      config.order = SampleOrder::random;
      config.last_micro_step = LastMicroStep::exact;
      Sampler sampler(config);
      std::vector<std::int64_t> seen;
      for (std::int64_t step = 0; step < sampler.steps_per_epoch(); ++step) {
        auto const some = samples_of_step(sampler, step);
        EXPECT_EQ(sampler.samples(step), static_cast<std::int64_t>(some.size()));
        seen.insert(seen.end(), some.begin(), some.end());
      }
      std::ranges::sort(seen);
      std::vector<std::int64_t> all(static_cast<std::size_t>(samples));
      std::iota(all.begin(), all.end(), 0);
      EXPECT_EQ(seen, all);
    }
  }
  auto config = sequential(3, 4, 1);
  config.last_micro_step = LastMicroStep::exact;
  EXPECT_THAT(Sampler(config).micro_batches(0, tessera::Rank(3)), ElementsAre(IsEmpty()));
}

/// The stored epochs of the Trainer under @p key.
void expect_order_of_trainer(char const* key, SampleOrder order) {
  ConfigTree const vectors = ConfigTree::read(TESSERA_TEST_DATA "/data/vectors/data_order.json");
  for (auto const& expected : vectors.at(key).as_array()) {
    SCOPED_TRACE(expected.dump());
    SamplerConfig config =
        sequential(expected.at("samples").as_int(), static_cast<int>(expected.at("ranks").as_int()),
                   expected.at("micro_batch").as_int());
    config.order = order;
    config.seed = static_cast<std::uint64_t>(expected.at("seed").as_int());
    Sampler sampler(config);
    for (auto const& epoch : expected.at("epochs").as_array()) {
      std::size_t const index =
          static_cast<std::size_t>(&epoch - expected.at("epochs").as_array().data());
      for (int rank = 0; rank < config.ranks; ++rank) {
        std::vector<MicroBatch> dealt;
        for (std::int64_t k = 0; k < sampler.steps_per_epoch(); ++k)
          dealt.push_back(sampler.micro_batches(
              static_cast<std::int64_t>(index) * sampler.steps_per_epoch() + k,
              tessera::Rank(rank))[0]);
        EXPECT_EQ(dealt, batches_of(epoch.as_array()[static_cast<std::size_t>(rank)]))
            << "epoch " << index << " rank " << rank;
      }
    }
  }
}

TEST(Sampler, ReadsInTheRandomOrderOfTheTrainer) {
  expect_order_of_trainer("epochs", SampleOrder::random);
}

TEST(Sampler, ReadsInTheOrderOfTheTrainersGroupsByLength) {
  expect_order_of_trainer("grouped", SampleOrder::group_by_length);
}

class RandomOrder : public ::testing::TestWithParam<SampleOrder> {};
INSTANTIATE_TEST_SUITE_P(Both, RandomOrder,
                         ::testing::Values(SampleOrder::random, SampleOrder::philox,
                                           SampleOrder::group_by_length));

TEST_P(RandomOrder, IsAPermutationOfSeedAndEpoch) {
  auto config = sequential(500, 1, 500);
  config.order = GetParam();
  Sampler sampler(config), again(config);
  auto const first = sampler.micro_batches(0, tessera::Rank(0))[0],
             second = sampler.micro_batches(1, tessera::Rank(0))[0];
  EXPECT_NE(first, second);
  EXPECT_EQ(sampler.micro_batches(0, tessera::Rank(0))[0], first);  // going back, as after a resume
  EXPECT_EQ(again.micro_batches(1, tessera::Rank(0))[0], second);
  config.seed = 43;
  EXPECT_NE(Sampler(config).micro_batches(0, tessera::Rank(0))[0], first);
  auto sorted = first;
  std::ranges::sort(sorted);
  for (std::int64_t i = 0; i < 500; ++i) ASSERT_EQ(sorted[static_cast<std::size_t>(i)], i);
}

/// Over many epochs each of the 24 orders of four samples comes up about equally often: chi-squared
/// with 23 degrees of freedom exceeds 58 with a probability below 1e-4, and the seed is fixed.
TEST(Sampler, RandomOrderIsUniform) {
  auto config = sequential(4, 1, 4);
  config.order = SampleOrder::random;
  Sampler sampler(config);
  std::vector<double> counts(256);
  int const epochs = 24000;
  for (int epoch = 0; epoch < epochs; ++epoch) {
    auto const order = sampler.micro_batches(epoch, tessera::Rank(0))[0];
    ++counts[static_cast<std::size_t>(order[0] * 64 + order[1] * 16 + order[2] * 4 + order[3])];
  }
  double chi_squared = 0;
  for (double const count : counts)
    if (count > 0)
      chi_squared += (count - epochs / 24.0) * (count - epochs / 24.0) / (epochs / 24.0);
  EXPECT_EQ(std::ranges::count_if(counts, [](double c) { return c > 0; }), 24);
  EXPECT_LT(chi_squared, 58);
}

template <class ErrorType>
std::string config_error(SamplerConfig const& config) {
  return tessera::error_of<ErrorType>([&] { Sampler sampler(config); });
}

TEST(Sampler, RefusesWhatCannotWork) {
  EXPECT_THAT(config_error<tessera::DataError>(sequential(0, 1, 1)),
              HasSubstr("no training samples"));
  EXPECT_THAT(config_error<tessera::ConfigError>(sequential(1, 0, 1)), HasSubstr("0 ranks"));
  EXPECT_THAT(config_error<tessera::DataError>(sequential(std::int64_t{1} << 32, 1, 1)),
              HasSubstr("4294967296 samples"));
  auto config = sequential(3, 2, 2);
  config.last_micro_step = LastMicroStep::drop;
  EXPECT_THAT(config_error<tessera::DataError>(config),
              HasSubstr("3 samples do not fill one micro-step of 2 ranks times 2 samples"));
  config = sequential(3, 1, 1);
  config.epochs = 0;
  EXPECT_THAT(config_error<tessera::ConfigError>(config), HasSubstr("num_train_epochs is 0"));
}

TEST(Evaluation, RangesCoverEachSampleOnce) {
  for (std::int64_t samples : {0, 1, 7, 8, 100})
    for (int ranks : {1, 2, 3, 8}) {
      std::int64_t end = 0;
      for (int rank = 0; rank < ranks; ++rank) {
        auto const range = evaluation_range(samples, ranks, tessera::Rank(rank));
        EXPECT_EQ(range.begin, end);
        EXPECT_LE(range.end - range.begin, samples / ranks + 1);
        EXPECT_GE(range.end - range.begin, samples / ranks);
        end = range.end;
      }
      EXPECT_EQ(end, samples);
    }
}

}  // namespace
