/// What the benchmark of overlap stands on: one rank that behaves as one of N, with a network that
/// takes the time of a formula.
#include <gtest/gtest.h>

#include "fake_device.hpp"
#include "overlap_measure.hpp"

namespace tessera::test {
namespace {

constexpr int ranks = 4;

std::vector<float> arrived(memory::Queue& queue, void const* from, std::size_t numel) {
  std::vector<float> out(numel);
  memory::copy(queue, out.data(), from, numel * sizeof(float));
  queue.record().wait("test", std::chrono::seconds(30));
  return out;
}

class DelayedNetwork : public ::testing::TestWithParam<bool> {
 protected:
  void SetUp() override {
    if (GetParam()) FakeDevice::of_process().capacity = std::size_t{1} << 30;
    queue_ =
        GetParam() ? memory::make_stream_queue("compute") : memory::make_inline_queue("compute");
  }
  std::unique_ptr<memory::Queue> queue_;
};

TEST_P(DelayedNetwork, MovesThisRanksPartAndTakesTheFormulasTime) {
  DelayedCollectives comm(ranks, memory::memory_space_of(*queue_));
  std::vector<float> const values{1, 2, 3, 4, 5, 6, 7, 8};
  auto const whole = comm.allocate("whole", memory::Purpose::data, 32),
             part = comm.allocate("part", memory::Purpose::data, 8);
  memory::TensorView const all(whole.get(), Dtype::fp32, {8}), own(part.get(), Dtype::fp32, {2});
  memory::copy(*queue_, whole.get(), values.data(), 32);
  comm.set({0.001, 1e6});

  comm.wait(
      comm.reduce_scatter(all, {2, 2, 0}, own, memory::WriteMode::overwrite, queue_->record()));
  EXPECT_EQ(arrived(*queue_, part.get(), 2), (std::vector<float>{1, 2}));
  comm.wait(comm.reduce_scatter(all, {2, 2, 0}, own, memory::WriteMode::add, {}));
  EXPECT_EQ(arrived(*queue_, part.get(), 2), (std::vector<float>{2, 4}));
  comm.wait(comm.all_gather(own, all, {2, 2, 0}, {}));
  EXPECT_EQ(arrived(*queue_, whole.get(), 8), (std::vector<float>{2, 4, 2, 4, 2, 4, 2, 4}));
  comm.wait(comm.all_reduce(all, comm::ReduceOp::sum, {}));
  EXPECT_EQ(comm.operations(), 4);
  // latency + 32 bytes (N - 1) / N / bandwidth, for all_reduce twice the bytes
  EXPECT_NEAR(comm.planned_seconds(), 4 * 0.001 + (3 * 24 + 48) / 1e6, 1e-12);
  EXPECT_GE(comm.taken_seconds(), comm.planned_seconds());
}

/// ZeRO paper, section 7: a gradient reduction and a gathering of weights move 2 psi (N - 1) / N
/// elements, whether as one all-reduce or as two. Stage 3 gathers up to twice.
TEST_P(DelayedNetwork, AStepTakesTheVolumeOfItsStage) {
  for (bool const overlaps : {false, true})
    for (int stage = 0; stage <= 3; ++stage) {
      OverlapTraining training({2, 48, 3, 2, 16, stage, ranks, 1.0, 1, 0.0}, *queue_, overlaps);
      training.step();
      training.comm().finish();
      double const bandwidth = 1e12, before = training.comm().planned_seconds();
      training.comm().set({0.0, bandwidth});
      training.step();
      training.comm().finish();
      double elements = 0.0;
      auto const& plan = training.engine().plan();
      for (auto const& unit : plan.units()) elements += static_cast<double>(unit.padded_numel);
      double const volume = 2 * elements * (ranks - 1) / ranks * sizeof(bfloat16) / bandwidth,
                   planned = training.comm().planned_seconds() - before;
      EXPECT_GE(planned, volume * (1 - 1e-4)) << "stage " << stage;
      if (stage < 3) {
        EXPECT_LE(planned, volume * (1 + 1e-4)) << "stage " << stage;
      }
    }
}

INSTANTIATE_TEST_SUITE_P(Places, DelayedNetwork, ::testing::Bool(),
                         [](auto const& info) { return info.param ? "Device" : "Host"; });

/// Two equal units, by hand. Seconds: update 1, forward 2, backward 4 of each.
TEST(Overlap, ItsBoundIsThatOfTheOrderOfAStep) {
  UnitCost const unit{.update = 1, .forward = 2, .backward = 4};
  StepCost step{{unit, unit}, 0.0};
  EXPECT_EQ(shortest_step(step), 14);
  EXPECT_EQ(hidden_bound(step), 0.0) << "no communication";
  // gathers 1..2, 2..3 behind the updates; reductions 10..11, 14..15: only the last one shows
  for (auto& u : step.units) u.gather = u.reduce = 1;
  EXPECT_EQ(shortest_step(step), 15);
  EXPECT_DOUBLE_EQ(hidden_bound(step), 1.0 - 1.0 / 4.0);
  step.norm = 0.5;
  EXPECT_DOUBLE_EQ(hidden_bound(step), 1.0 - 1.5 / 4.5);
  // gathers 1..8, 8..15, so that the second forward ends at 17; reductions 21..28, 28..35
  step.norm = 0.0;
  for (auto& u : step.units) u.gather = u.reduce = 7;
  EXPECT_EQ(shortest_step(step), 35);
  EXPECT_DOUBLE_EQ(hidden_bound(step), 1.0 - 21.0 / 28.0);
  // second gathers 15..16, 16..17 are hidden by the forward pass
  for (auto& u : step.units) u.gather_again = 1;
  EXPECT_EQ(shortest_step(step), 35);
  // 15..18, 18..21: the second unit's backward waits from 17 to 18, the first one's for nothing
  for (auto& u : step.units) u.gather_again = 3;
  EXPECT_EQ(shortest_step(step), 36);
}

/// What a step computes and sends is what the bound counts, but for some bytes of the norm.
TEST(Overlap, ItsBoundCountsTheMessagesOfAStep) {
  auto const queue = memory::make_inline_queue("compute");
  for (int stage = 0; stage <= 3; ++stage) {
    OverlapTraining training({2, 48, 3, 2, 16, stage, ranks, 1.0, 1, 0.0}, *queue, true);
    for (int i = 0; i < 2; ++i) training.step();
    auto const cost = training.step_cost(3.0);
    EXPECT_NEAR(cost.computation(), 3.0, 1e-9);
    training.comm().set({0.0, 1e9});
    double const before = training.comm().planned_seconds();
    training.step();
    training.comm().finish();
    double const planned = training.comm().planned_seconds() - before;
    EXPECT_NEAR(cost.communication(), planned, 1e-4 * planned) << "stage " << stage;
    EXPECT_LE(hidden_bound(cost), 1.0);
  }
}

TEST(Overlap, RefusesACaseThatIsNone) {
  auto const queue = memory::make_inline_queue("compute");
  EXPECT_THROW(measure_overlap({2, 48, 3, 2, 16, 4, ranks, 1.0}, *queue), UsageError);
  EXPECT_THROW(measure_overlap({2, 48, 3, 2, 16, 1, 1, 1.0}, *queue), UsageError);
}

}  // namespace
}  // namespace tessera::test
