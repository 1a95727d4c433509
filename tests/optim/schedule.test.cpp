#include "tessera/optim/deepspeed_lr_schedule.hpp"
#include "tessera/optim/hf_lr_schedule.hpp"

#include <gtest/gtest.h>

#include <algorithm>
#include <string>

#include "tessera/core/error.hpp"

namespace tessera::optim {
namespace {

ConfigTree const& oracle() {
  static ConfigTree const tree =
      ConfigTree::read(std::string(TESSERA_TEST_DATA) + "/oracles/schedules.json");
  return tree;
}

void expect_rates(Schedule const& schedule, ConfigTree const& c) {
  double largest = 0.0;
  for (auto const& rate : c.at("rates").as_array()) largest = std::max(largest, rate.as_double());
  std::int64_t step = 0;
  for (auto const& rate : c.at("rates").as_array()) {
    ++step;
    EXPECT_NEAR(schedule(step), rate.as_double(), 1e-15 * largest)
        << "step " << step << " of " << c.dump();
  }
}

TEST(HfSchedule, EqualsTransformers) {
  for (auto const& c : oracle().at("hf_cases").as_array())
    expect_rates(
        hf_schedule(c.at("type").as_string(), c.at("learning_rate").as_double(),
                    c.at("warmup_steps").as_int(), c.at("total_steps").as_int(), c.at("kwargs")),
        c);
}

TEST(HfSchedule, TheFirstStepOfAWarmupHasRateZero) {
  auto const schedule = hf_schedule("linear", 1e-3, 10, 100);
  EXPECT_EQ(schedule(1), 0.0);
  EXPECT_DOUBLE_EQ(schedule(2), 1e-4);
  EXPECT_DOUBLE_EQ(schedule(11), 1e-3);
  EXPECT_DOUBLE_EQ(schedule(100), 1e-3 / 90);
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

/// Runs f, which must throw ConfigError, and gives the message.
template <class F>
std::string refusal(F&& f) {
  try {
    f();
  } catch (ConfigError const& e) {
    return e.what();
  }
  ADD_FAILURE() << "nothing was refused";
  return "";
}
std::string deepspeed_refusal(char const* text) {
  return refusal([&] { deepspeed_schedule(ConfigTree::parse(text, "test"), 1e-3); });
}
void expect_contains(std::string const& text, char const* part) {
  EXPECT_NE(text.find(part), std::string::npos) << text;
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
  expect_contains(
      deepspeed_refusal(R"({"type": "WarmupLR", "params": {"warmup_num_steps": "auto"}})"),
      "warmup_num_steps is \"auto\"; it must be a number");
  expect_contains(deepspeed_refusal(R"({"type": "WarmupLR", "params": {"warmup_num_steps": -5}})"),
                  "at least 1");
  expect_contains(deepspeed_refusal(R"({"type": "WarmupLR", "params": {"warmup_num_steps": 2.5}})"),
                  "integer");
  expect_contains(deepspeed_refusal(R"({"type": "WarmupLR", "params": {"warmup_type": "cubic"}})"),
                  "known are log, linear");
  expect_contains(
      deepspeed_refusal(R"({"type": "WarmupLR", "params": {"warmup_max_lr": [1e-3, 2e-3]}})"),
      "parameter groups");
  expect_contains(
      deepspeed_refusal(R"({"type": "WarmupLR", "params": {"last_batch_iteration": 7}})"),
      "checkpoint");
  expect_contains(deepspeed_refusal(R"({"type": "WarmupDecayLR", "params": {}})"),
                  "total_num_steps is missing");
  expect_contains(
      deepspeed_refusal(
          R"({"type": "OneCycle", "params": {"cycle_min_lr": 0.1, "cycle_max_lr": 1}})"),
      "cycle_momentum");
  expect_contains(
      deepspeed_refusal(
          R"({"type": "OneCycle", "params": {"cycle_momentum": false, "cycle_max_lr": 1}})"),
      "cycle_min_lr is missing");
  expect_contains(
      deepspeed_refusal(R"({"type": "LRRangeTest", "params": {"lr_range_test_staircase": 1}})"),
      "true or false");
  expect_contains(deepspeed_refusal(R"({"type": "LRRangeTest", "params": []})"),
                  "must be an object");
}

TEST(DeepspeedSchedule, TakesEqualRatesOfSeveralGroups) {
  auto const schedule = deepspeed_schedule(
      ConfigTree::parse(
          R"({"type": "WarmupLR", "params": {"warmup_max_lr": [0.01, 0.01], "warmup_num_steps": 5e0}})",
          "test"),
      1e-3);
  EXPECT_EQ(schedule(100), 0.01);
}

TEST(HfSchedule, RefusesByName) {
  expect_contains(refusal([] { hf_schedule("quadratic", 1e-3, 0, 10); }),
                  "lr_scheduler_type is quadratic, which is not known; known are linear, cosine, "
                  "cosine_with_restarts, polynomial, constant, "
                  "constant_with_warmup, inverse_sqrt");
  expect_contains(refusal([] { hf_schedule("reduce_lr_on_plateau", 1e-3, 0, 10); }),
                  "evaluation results");
  expect_contains(refusal([] { hf_schedule("linear", -1.0, 0, 10); }), "learning_rate is -1");
  expect_contains(refusal([] { hf_schedule("linear", 1e-3, -1, 10); }), "-1 warm-up steps");
  expect_contains(refusal([] { hf_schedule("polynomial", 1e-8, 0, 10); }), "lr_end");
  expect_contains(refusal([] { hf_schedule("cosine_with_min_lr", 1e-3, 0, 10); }),
                  "exactly one of min_lr and min_lr_rate");
  expect_contains(refusal([] {
                    hf_schedule("cosine", 1e-3, 0, 10,
                                ConfigTree::parse(R"({"cycles": 1})", "test"));
                  }),
                  "lr_scheduler_kwargs.cycles is not known here; known are num_cycles");
}

}  // namespace
}  // namespace tessera::optim
