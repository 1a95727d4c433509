#include "tessera/plan/auto_tune.hpp"

#include <gtest/gtest.h>

#include <chrono>
#include <limits>

#include "mpi_test.hpp"
#include "plan_fixture.hpp"
#include "scratch_files.hpp"
#include "tessera/comm/compose/host_collectives.hpp"
#include "tessera/memory/limits.hpp"

namespace tessera::plan {
namespace {

constexpr double any = std::numeric_limits<double>::max();

class TrialOnRanks : public ::testing::Test {
 protected:
  Planner planner(std::vector<std::string> const& more = {}) {
    std::vector<std::string> words{"--use_cpu", "--gradient_accumulation_steps", "2"};
    words.insert(words.end(), more.begin(), more.end());
    return Planner(test::request(test::small_gpt2(words), {1, comm_->size()}));
  }
  TrialContext context() { return {*comm_, comm_->size(), false, 1, 1}; }
  static std::size_t tracked() { return memory::MemoryTracker::of_process().current_total(); }

  std::unique_ptr<comm::Collectives> comm_ =
      comm::make_mpi(tessera::test::session(), std::chrono::seconds(60));
};

TEST_F(TrialOnRanks, MeasuresTheSameSecondsOnAllRanksAndFreesEverything) {
  auto plan = planner();
  (void)run_trial(plan, {.stage = 0, .micro_batch = 1, .accumulation = 2}, context(), any);
  std::size_t const before = tracked();  // kernels keep small workspaces
  for (int stage = 0; stage < 4; ++stage) {
    auto const trial = run_trial(plan,
                                 {.stage = stage,
                                  .recompute = stage == 3 ? Recompute::block : Recompute::none,
                                  .micro_batch = 1,
                                  .accumulation = 2},
                                 context(), any);
    ASSERT_TRUE(trial.ran()) << trial.refused;
    EXPECT_EQ(comm::all_reduce_value(*comm_, trial.seconds, comm::ReduceOp::min), trial.seconds);
    EXPECT_EQ(tracked(), before) << stage;
  }
}

TEST_F(TrialOnRanks, ACandidateThatRunsOutOfMemoryLeavesNothing) {
  auto plan = planner();
  std::size_t const before = tracked();
  memory::limit_memory(memory::MemorySpace::host, before + (std::size_t{24} << 20));
  auto const trial = run_trial(plan, {.stage = 0, .micro_batch = 16}, context(), any);
  memory::limit_memory(memory::MemorySpace::host, 0);
  EXPECT_FALSE(trial.ran());
  EXPECT_NE(trial.refused, "");
  EXPECT_EQ(tracked(), before);
  EXPECT_TRUE(run_trial(plan, {.stage = 0, .micro_batch = 1}, context(), any).ran())
      << "the next one runs";
}

TEST_F(TrialOnRanks, GivesUpWhatIsTooSlowAndRefusesWhatARunRefuses) {
  auto plan = planner();
  auto const slow = run_trial(plan, {.stage = 1, .micro_batch = 2}, context(), 1e-9);
  EXPECT_NE(slow.refused.find("given up"), std::string::npos) << slow.refused;
  auto other = planner({"--deepspeed", R"({"zero_optimization": {"stage": 2, "offload_optimizer":
      {"device": "nvme", "nvme_path": "/proc/nowhere"}}})"});
  auto const refused =
      run_trial(other, {.stage = 2, .optimizer = config::OffloadDevice::nvme, .micro_batch = 1},
                context(), any);
  EXPECT_FALSE(refused.ran());
  EXPECT_NE(refused.refused.find("/proc/nowhere"), std::string::npos) << refused.refused;
}

}  // namespace
}  // namespace tessera::plan
