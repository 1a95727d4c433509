#include "tessera/plan/step_time.hpp"

#include <gtest/gtest.h>

#include "plan_fixture.hpp"
#include "tessera/core/error.hpp"
#include "tessera/model/families/registry.hpp"

namespace tessera::plan {
namespace {

using memory::PlannedWork;
using Kind = PlannedWork::Kind;

/// One step of nothing, then one of @p work on the queues compute, collectives, reductions, link.
train::PlannedSteps second_step(std::vector<PlannedWork> work) {
  train::PlannedSteps out;
  out.queues = {"compute", "collectives", "reductions", "gradients to the host", "optimizer"};
  out.work = std::move(work);
  return out;
}

PlannedWork product(double seconds, std::vector<int> after = {}) {
  return {.kind = Kind::product, .flops = seconds * 1e12, .after = std::move(after)};
}
PlannedWork gather(double seconds, std::vector<int> after = {}, int queue = 1) {
  return {.kind = Kind::collective,
          .queue = queue,
          .bytes = static_cast<std::size_t>(seconds * 2e9),  // half of it per rank of two
          .name = "all_gather",
          .after = std::move(after)};
}

TEST(StepTime, OverlapsWhatNothingOrders) {
  auto const machine = test::round_machine();
  Cluster const two{1, 2};
  auto const overlapped =
      step_time(second_step({gather(2), product(3), product(1, {0, 1})}), two, machine);
  EXPECT_NEAR(overlapped.seconds, 4.0, 1e-9);
  EXPECT_NEAR(overlapped.compute, 4.0, 1e-9);
  EXPECT_NEAR(overlapped.communication, 2.0, 1e-9);
  EXPECT_NEAR(overlapped.exposed(), 0.0, 1e-9);
  auto const waits =
      step_time(second_step({gather(5), product(3), product(1, {0, 1})}), two, machine);
  EXPECT_NEAR(waits.seconds, 6.0, 1e-9);
  EXPECT_NEAR(waits.exposed(), 2.0, 1e-9);
}

TEST(StepTime, CollectivesShareTheNetworkInOrderOfReadiness) {
  auto const machine = test::round_machine();
  // the second collective is ready first, although it was enqueued later
  auto const time =
      step_time(second_step({product(1), gather(4, {0}), gather(3, {}, 2), product(1, {0, 1, 2})}),
                {1, 2}, machine);
  EXPECT_NEAR(time.seconds, 3 + 4 + 1, 1e-9);
}

TEST(StepTime, CountsTheSecondStepOnly) {
  auto const machine = test::round_machine();
  auto steps = second_step({product(10), gather(4, {0}), product(1, {0, 1})});
  steps.first_of_second = 2;  // the gather of the first step delays the second
  auto const time = step_time(steps, {1, 2}, machine);
  EXPECT_NEAR(time.seconds, 5.0, 1e-9);
  EXPECT_NEAR(time.communication, 0.0, 1e-9);
}

TEST(StepTime, EachKindHasItsSpeed) {
  auto machine = test::round_machine();
  machine.memory_bandwidth = 4e9;
  machine.host_memory_bandwidth = 2e9;
  machine.host_link = {0.5, 1e9};
  machine.pass_efficiency = 0.5;
  auto const seconds = [&](PlannedWork const& work, char const* queue) {
    return seconds_of(work, queue, {1, 2}, machine);
  };
  EXPECT_DOUBLE_EQ(seconds({.kind = Kind::update, .bytes = 4'000'000'000}, "compute"), 1.0);
  EXPECT_DOUBLE_EQ(seconds({.kind = Kind::update, .bytes = 4'000'000'000}, "optimizer"), 2.0);
  EXPECT_DOUBLE_EQ(seconds({.kind = Kind::copy, .bytes = 1'000'000'000}, "compute"), 0.5);
  EXPECT_DOUBLE_EQ(seconds({.kind = Kind::copy, .bytes = 1'000'000'000}, "to the host"), 1.5);
  EXPECT_DOUBLE_EQ(seconds({.kind = Kind::product, .flops = 1e12}, "compute"), 2.0);
  EXPECT_DOUBLE_EQ(seconds({.kind = Kind::wait}, "compute"), 0.0);
  machine.drive_read = 0.0;
  EXPECT_THROW((void)seconds({.kind = Kind::read, .bytes = 1}, "swap read"), ConfigError);
}

/// Products of a real pass: 2 FLOP per multiplication, and three times the forward pass.
TEST(StepTime, OfARealModelIsItsProducts) {
  ConfigTree config = model::default_config("gpt2");
  config.set("n_embd", 128).set("n_layer", 2).set("n_head", 2).set("vocab_size", 1024);
  auto const model = model::make_model(config, Dtype::bf16);
  train::PlannedRun run;
  run.engine.dtype = run.engine.communication_dtype = Dtype::bf16;
  run.rows = 2;
  run.sequence = 64;
  auto const steps = train::plan_steps(*model, run, 1);
  double products = 0.0, attention = 0.0;
  for (std::size_t i = steps.first_of_second; i < steps.work.size(); ++i) {
    if (steps.work[i].kind == Kind::product) products += steps.work[i].flops;
    if (steps.work[i].kind == Kind::attention) attention += steps.work[i].flops;
  }
  double const tokens = 128, matrices = 2 * 12.0 * 128 * 128 + 1024.0 * 128;
  EXPECT_NEAR(products, 6 * tokens * matrices, 1e-6 * products);
  EXPECT_NEAR(attention, 2 * 7 * 2.0 * (2 * 128) * (64 * 65 / 2), 1e-6 * attention);
  auto const time = step_time(steps, {1, 1}, test::round_machine());
  EXPECT_GE(time.seconds, (products + attention) / 1e12);
}

}  // namespace
}  // namespace tessera::plan
