#include "tessera/plan/ladder.hpp"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "plan_fixture.hpp"

namespace tessera::plan {
namespace {

using ::testing::Contains;
using ::testing::HasSubstr;

Planner planner_of(Limits limits, std::vector<std::string> const& more = {}) {
  auto request = test::request(test::small_gpt2(more));
  request.limits = limits;
  return Planner(std::move(request));
}

TEST(Ladder, HasTheGuidesStepsWithLessMemoryEach) {
  auto planner = planner_of({.nvme = 1});
  auto const steps = ladder(planner);
  ASSERT_EQ(steps.size(), 11u);
  EXPECT_THAT(steps[1].change, HasSubstr("--per_device_train_batch_size 1"));
  EXPECT_EQ(steps[1].planned.choice.accumulation, 8);
  EXPECT_EQ(steps[2].change, "--recompute light");
  EXPECT_EQ(steps[4].change, "stage 2");
  EXPECT_THAT(steps[8].change, HasSubstr("offload_param to the CPU"));
  EXPECT_THAT(steps[10].change, HasSubstr("offload_param to NVMe"));
  for (std::size_t i = 1; i < steps.size(); ++i) {
    EXPECT_EQ(steps[i].planned.refused, "");
    if (i == 6) continue;  // stage 3 without offload after stage 2 with it
    if (i == 9) continue;  // the optimizer on NVMe after the weights in host memory
    EXPECT_LE(steps[i].planned.device_bytes, steps[i - 1].planned.device_bytes) << steps[i].change;
  }
}

TEST(Ladder, OfAHostHasNoOffloadToTheHost) {
  auto planner = planner_of({.nvme = 1}, {"--use_cpu"});
  auto const steps = ladder(planner);
  for (auto const& step : steps) EXPECT_EQ(step.change.find("CPU"), std::string::npos);
  EXPECT_THAT(steps.back().change, HasSubstr("offload_param to NVMe"));
}

TEST(ChangesThatFit, AreCheckedOneByOne) {
  std::int64_t const mebi = std::int64_t{1} << 20;
  auto planner = planner_of({.device = 14 * mebi}, {"--per_device_train_batch_size", "1"});
  ASSERT_EQ(recommended(planner.compare()), nullptr);
  auto const changes = changes_that_fit(planner);
  EXPECT_THAT(changes, Contains(HasSubstr("of device memory per rank")));
  for (auto const& change : changes) {
    if (!change.starts_with("--nodes ")) continue;
    auto request = planner.request();
    request.cluster.nodes = std::stoi(change.substr(8));
    Planner wider(request);
    EXPECT_NE(recommended(wider.compare()), nullptr) << change;
    request.cluster.nodes /= 2;
    Planner narrower(std::move(request));
    EXPECT_EQ(recommended(narrower.compare()), nullptr) << "not the smallest: " << change;
  }
}

}  // namespace
}  // namespace tessera::plan
