#include "tessera/plan/simulation.hpp"

#include <gtest/gtest.h>

#include <cmath>
#include <ctime>
#include <random>

#include "plan_fixture.hpp"
#include "tessera/model/families/registry.hpp"
#include "tessera/plan/step_time.hpp"

namespace tessera::plan {
namespace {

using memory::PlannedWork;
using Kind = PlannedWork::Kind;

/// Seconds of each piece; collectives on a queue of their own.
struct Pieces {
  train::PlannedSteps steps;
  std::vector<double> seconds;

  Pieces() { steps.queues = {"compute", "collectives", "copies"}; }
  Pieces& add(Kind kind, double time, std::vector<int> after = {}) {
    int const queue = kind == Kind::product ? 0 : kind == Kind::collective ? 1 : 2;
    steps.work.push_back({.kind = kind, .queue = queue, .after = std::move(after)});
    seconds.push_back(time);
    return *this;
  }
  double run(std::vector<RankClass> const& classes, double share = 0.0) const {
    return Simulation({steps, seconds, share}, classes).second_step_end();
  }
};

TEST(Simulation, ACollectiveStartsWithTheLastRankAndEndsOnAllTogether) {
  auto const pieces = Pieces()
                          .add(Kind::product, 1.0)
                          .add(Kind::collective, 2.0, {0})
                          .add(Kind::product, 3.0, {0, 1});
  EXPECT_DOUBLE_EQ(pieces.run({{.ranks = 8}}), 6.0);
  EXPECT_DOUBLE_EQ(pieces.run({{.ranks = 7}, {.ranks = 1, .compute = 1.5}}), 1.5 + 2.0 + 4.5);
  EXPECT_DOUBLE_EQ(pieces.run({{.ranks = 7}, {.ranks = 1, .network = 2.0}}), 1.0 + 4.0 + 3.0);
}

TEST(Simulation, CollectivesContendForTheNetworkAndCopiesDoNot) {
  auto const pieces = Pieces()
                          .add(Kind::collective, 2.0)
                          .add(Kind::collective, 3.0)
                          .add(Kind::copy, 4.0)
                          .add(Kind::product, 1.0, {0, 1, 2});
  EXPECT_DOUBLE_EQ(pieces.run({{}}), 6.0);
}

/// A collective of 2 s that takes half of the cores: 1 s of the product passes in it.
TEST(Simulation, ACollectiveTakesItsShareOfTheCores) {
  auto const pieces =
      Pieces().add(Kind::product, 4.0).add(Kind::collective, 2.0).add(Kind::product, 1.0, {0, 1});
  EXPECT_DOUBLE_EQ(pieces.run({{}}, 0.0), 5.0);
  EXPECT_DOUBLE_EQ(pieces.run({{}}, 0.5), 6.0);
  EXPECT_DOUBLE_EQ(pieces.run({{}}, 1.0), 7.0);
}

train::PlannedSteps steps_of_model(int stage, int ranks) {
  auto config = model::default_config("gpt2");
  config.set("n_embd", 64).set("n_layer", 3).set("n_head", 2).set("vocab_size", 512);
  auto const model = model::make_model(config, Dtype::bf16);
  train::PlannedRun run;
  run.engine.partition = zero::partition_of(stage);
  run.engine.dtype = run.engine.communication_dtype = Dtype::bf16;
  run.ranks = ranks;
  run.rows = 2;
  run.sequence = 64;
  return train::plan_steps(*model, run, 1);
}

/// Every rank by itself: bit for bit the same, with stragglers and a slow link.
TEST(Simulation, IsThatOfAllRanksByThemselves) {
  auto machine = test::round_machine();
  machine.intra_node = machine.inter_node = {1e-6, 1e9};
  for (int const ranks : {4, 64, 512, 4096}) {
    for (int const stage : {0, 3}) {
      Cluster const cluster{ranks / 4, 4};
      auto const steps = steps_of_model(stage, ranks);
      machine.collective_share = stage == 0 ? 0.25 : 0.0;
      std::vector<RankClass> const classes{{.ranks = ranks - 3},
                                           {.ranks = 2, .compute = 1.1},
                                           {.ranks = 1, .compute = 1.05, .network = 1.5}};
      std::vector<RankClass> each;
      for (auto const& c : classes)
        for (std::int64_t i = 0; i < c.ranks; ++i) each.push_back({1, c.compute, c.network});
      std::shuffle(each.begin(), each.end(), std::mt19937(3));
      EXPECT_EQ(step_time(steps, cluster, machine, classes).seconds,
                step_time(steps, cluster, machine, each).seconds)
          << ranks << " ranks, stage " << stage;
      EXPECT_EQ(step_time(steps, cluster, machine, {{.ranks = ranks}}).seconds,
                step_time(steps, cluster, machine, std::vector<RankClass>(ranks)).seconds);
    }
  }
}

/// The expected slowest of ranks whose speeds differ, against drawn ones.
TEST(Simulation, JitterIsTheExpectedSlowestRank) {
  auto const pieces = Pieces()
                          .add(Kind::product, 1.0)
                          .add(Kind::collective, 0.0, {0})
                          .add(Kind::product, 1e-9, {1});
  std::mt19937 random(5);
  for (int const ranks : {2, 16, 1024}) {
    double sum = 0.0;
    constexpr int rounds = 200;
    for (int round = 0; round < rounds; ++round) {
      std::normal_distribution<double> noise(1.0, 0.02);
      std::vector<RankClass> each;
      for (int i = 0; i < ranks; ++i) each.push_back({1, noise(random), 1.0});
      sum += pieces.run(each);
    }
    EXPECT_NEAR(pieces.run(classes_with_jitter(ranks, 0.02)), sum / rounds, 0.004) << ranks;
  }
  EXPECT_EQ(classes_with_jitter(100, 0.0), (std::vector<RankClass>{{.ranks = 100}}));
}

}  // namespace
}  // namespace tessera::plan
