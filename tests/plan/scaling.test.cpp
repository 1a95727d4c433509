#include "tessera/plan/scaling.hpp"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <ctime>

#include "plan_fixture.hpp"
#include "tessera/core/error.hpp"

namespace tessera::plan {
namespace {

using ::testing::HasSubstr;

ScalingRequest request(Scaling scaling, std::vector<int> nodes,
                       std::vector<std::string> const& more = {}) {
  ScalingRequest out;
  out.plan = test::request(test::small_gpt2(more), {1, 4});
  out.plan.machine = test::round_machine();
  out.plan.machine->memory_bandwidth = 1e13;  // the update of a rank shrinks with their number
  out.scaling = scaling;
  out.nodes = std::move(nodes);
  return out;
}
std::vector<std::string> const stage_3{"--deepspeed", R"({"zero_optimization": {"stage": 3}})"};

TEST(Scaling, WeakScalingOfAFreeNetworkIsPerfect) {
  auto free = request(Scaling::weak, {1, 4, 64}, stage_3);
  free.plan.machine->intra_node = free.plan.machine->inter_node = {0.0, 1e30};
  for (auto const& p : scale(free)) {
    ASSERT_EQ(p.refused, "");
    EXPECT_NEAR(p.efficiency, 1.0, 0.01);
    EXPECT_GE(p.efficiency, 1.0);
    EXPECT_DOUBLE_EQ(p.costs.latency, 0.0);
  }
}

/// The latency of a ring grows with the number of ranks, until it is the step.
TEST(Scaling, LatencyOfRingsEndsWeakScaling) {
  auto slow = request(Scaling::weak, {1, 16, 256, 4096}, stage_3);
  slow.plan.machine->intra_node = {1e-6, 1e11};
  slow.plan.machine->inter_node = {1e-5, 1e11};
  auto const points = scale(slow);
  auto const end = end_of_scaling(points, 0.5);
  ASSERT_LT(end, points.size());
  EXPECT_THAT(reason_of(points[end]), HasSubstr("latency of"));
  for (std::size_t i = 1; i < points.size(); ++i)
    EXPECT_LE(points[i].efficiency, points[i - 1].efficiency + 1e-9);
  EXPECT_GT(points.back().costs.latency, 0.9 * points.back().time.exposed());
  EXPECT_THAT(table_text(points, Scaling::weak), HasSubstr("Weak scaling falls below 80.0 %"));
}

TEST(Scaling, StrongScalingKeepsTheBatchAndEndsWithIt) {
  auto strong = request(Scaling::strong, {1, 2, 4, 8, 16}, {"--per_device_train_batch_size", "8"});
  auto const points = scale(strong);
  for (std::size_t i = 0; i < 4; ++i) {
    ASSERT_EQ(points[i].refused, "");
    EXPECT_EQ(
        points[i].choice.micro_batch * points[i].choice.accumulation * points[i].cluster.ranks(),
        32);
  }
  EXPECT_THAT(points[4].refused, HasSubstr("a step has 32 sequences, which 64 ranks cannot"));
  EXPECT_EQ(end_of_scaling(points, 0.0), 4u);
}

TEST(Scaling, StragglersAndJitterSlowAllRanks) {
  auto base = request(Scaling::weak, {8}, stage_3);
  double const even = scale(base)[0].time.seconds;
  base.jitter = 0.05;
  auto const jittered = scale(base)[0];
  EXPECT_GT(jittered.time.seconds, 1.05 * even);
  EXPECT_NEAR(jittered.costs.slow_ranks, jittered.time.seconds - even, 1e-9);
  base.jitter = 0.0;
  base.stragglers = {.ranks = 1, .compute = 2.0};
  EXPECT_GT(scale(base)[0].time.seconds, 1.5 * even);
}

/// A model of 128 layers on 10^5 ranks.
TEST(Scaling, HundredThousandRanksTakeSeconds) {
  ScalingRequest large;
  large.plan = test::request(
      {"--model_type", "gpt2", "--bf16", "--config_overrides",
       "n_layer=128,n_embd=8192,n_head=64,n_positions=2048", "--per_device_train_batch_size", "4",
       "--block_size", "2048", "--deepspeed", R"({"zero_optimization": {"stage": 3}})"},
      {1, 8});
  large.plan.machine = test::round_machine();
  large.nodes = {12'500};
  large.jitter = 0.01;
  auto const start = std::clock();
  auto const points = scale(large);
  double const seconds = static_cast<double>(std::clock() - start) / CLOCKS_PER_SEC;
  EXPECT_EQ(points[0].refused, "");
  EXPECT_EQ(points[0].cluster.ranks(), 100'000);
#if defined(NDEBUG) && !defined(__SANITIZE_ADDRESS__)
  EXPECT_LT(seconds, 5.0) << "of processor time";
#else
  (void)seconds;
#endif
}

TEST(Scaling, ReportsAreComplete) {
  auto const points = scale(request(Scaling::weak, {1, 2}));
  auto const json = to_json(points);
  ASSERT_EQ(json.size(), 2u);
  EXPECT_GT(json.as_array()[1].at("step").as_double(), 0.0);
  auto const svg = draw_scaling(points, Scaling::weak);
  EXPECT_THAT(svg, HasSubstr("<svg"));
  EXPECT_THAT(svg, HasSubstr("</svg>"));
}

}  // namespace
}  // namespace tessera::plan
