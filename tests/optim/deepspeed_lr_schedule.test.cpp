#include "tessera/optim/schedule.hpp"

#include "schedule_fixture.hpp"

namespace tessera::optim {
namespace {

std::string deepspeed_refusal(char const* text) {
  return refusal([&] { deepspeed_schedule(ConfigTree::parse(text, "test"), 1e-3); });
}

TEST(DeepspeedSchedule, EqualsDeepspeed) {
  for (auto const& c : oracle().at("deepspeed_cases").as_array())
    expect_rates(deepspeed_schedule(c.at("section"), c.at("learning_rate").as_double()), c);
}

TEST(DeepspeedSchedule, TheFirstTwoStepsOfAWarmupRunAtItsMinimum) {
  for (char const* type : {"log", "linear"}) {
    auto const section = ConfigTree::parse(
        concat(
            R"({"type": "WarmupLR", "params": {"warmup_min_lr": 1e-5, "warmup_num_steps": 4, "warmup_type": ")",
            type, R"("}})"),
        "test");
    auto const schedule = deepspeed_schedule(section, 1e-3);
    EXPECT_EQ(schedule(1), 1e-5);
    EXPECT_EQ(schedule(2), 1e-5);
    EXPECT_GT(schedule(3), 1e-5);
    EXPECT_EQ(schedule(6), 1e-3);
  }
}

TEST(DeepspeedSchedule, RefusesByName) {
  expect_contains(deepspeed_refusal(R"({"type": "warmuplr"})"),
                  "scheduler.type is \"warmuplr\"; known are LRRangeTest, OneCycle, WarmupLR, "
                  "WarmupDecayLR, WarmupCosineLR");
  expect_contains(deepspeed_refusal(R"({"params": {}})"), "scheduler.type is missing");
  expect_contains(deepspeed_refusal(R"({"type": "WarmupLR", "param": {}})"),
                  "scheduler.param is not known here");
  expect_contains(deepspeed_refusal(R"({"type": "WarmupLR", "params": {"warmup_steps": 3}})"),
                  "scheduler.params.warmup_steps is not known here; known are warmup_min_lr");
  expect_contains(deepspeed_refusal(R"({"type": "WarmupLR", "params": {"steps": 3, "rate": 1}})"),
                  "scheduler.params.steps, scheduler.params.rate are not known here; known are");
  expect_contains(
      deepspeed_refusal(R"({"type": "WarmupLR", "params": {"warmup_num_steps": "auto"}})"),
      "warmup_num_steps is \"auto\"; it must be a number");
  expect_contains(deepspeed_refusal(R"({"type": "WarmupLR", "params": {"warmup_num_steps": -5}})"),
                  "warmup_num_steps is -5; it must be an integer of at least 0");
  expect_contains(deepspeed_refusal(R"({"type": "WarmupLR", "params": {"warmup_num_steps": 2.5}})"),
                  "warmup_num_steps is 2.5; it must be an integer of at least 0");
  expect_contains(deepspeed_refusal(R"({"type": "WarmupLR", "params": {"warmup_type": "cubic"}})"),
                  "warmup_type is \"cubic\"; known are log, linear");
  expect_contains(
      deepspeed_refusal(R"({"type": "WarmupLR", "params": {"warmup_max_lr": [1e-3, 2e-3]}})"),
      "warmup_max_lr is [0.001,0.002]; rates that differ between parameter groups");
  expect_contains(
      deepspeed_refusal(R"({"type": "WarmupLR", "params": {"last_batch_iteration": 7}})"),
      "checkpoint");
  expect_contains(deepspeed_refusal(R"({"type": "WarmupDecayLR", "params": {}})"),
                  "total_num_steps is missing");
  expect_contains(
      deepspeed_refusal(
          R"({"type": "OneCycle", "params": {"cycle_momentum": false, "cycle_max_lr": 1}})"),
      "cycle_min_lr is missing");
  expect_contains(
      deepspeed_refusal(R"({"type": "LRRangeTest", "params": {"lr_range_test_staircase": 1}})"),
      "lr_range_test_staircase is 1; it must be true or false");
  expect_contains(deepspeed_refusal(R"({"type": "LRRangeTest", "params": []})"),
                  "must be an object");
}

/// Stored by tests/oracles/one_cycle.py.
TEST(DeepspeedSchedule, OneCycleMovesTheBetasAsDeepSpeed) {
  auto const stored = ConfigTree::read(std::string(TESSERA_TEST_DATA) + "/oracles/one_cycle.json");
  for (auto const& c : stored.at("cases").as_array()) {
    auto section = ConfigTree::object();
    section.set("type", "OneCycle").set("params", c.at("params"));
    auto const schedule = deepspeed_beta1_schedule(section);
    ASSERT_TRUE(schedule);
    EXPECT_EQ(c.at("beta2").as_double(), one_cycle_beta2);
    std::int64_t step = 0;
    for (auto const& beta1 : c.at("beta1").as_array())
      EXPECT_NEAR((*schedule)(++step), beta1.as_double(), 1e-12) << section.dump() << step;
    section["params"].set("cycle_momentum", false);
    EXPECT_FALSE(deepspeed_beta1_schedule(section));
  }
  EXPECT_FALSE(deepspeed_beta1_schedule(ConfigTree::parse(R"({"type": "WarmupLR"})", "test")));
}

TEST(DeepspeedSchedule, TakesEqualRatesOfSeveralGroups) {
  auto const schedule = deepspeed_schedule(
      ConfigTree::parse(
          R"({"type": "WarmupLR", "params": {"warmup_max_lr": [0.01, 0.01], "warmup_num_steps": 5e0}})",
          "test"),
      1e-3);
  EXPECT_EQ(schedule(100), 0.01);
}

}  // namespace
}  // namespace tessera::optim
