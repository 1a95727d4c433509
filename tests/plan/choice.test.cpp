#include "tessera/plan/choice.hpp"

#include <gtest/gtest.h>

#include <algorithm>

#include "plan_fixture.hpp"

namespace tessera::plan {
namespace {

using config::OffloadDevice;

std::vector<Choice> choices(std::vector<std::string> const& more,
                            ChoiceLimits const& limits = {true, false}) {
  auto const arguments = config::parse_options(test::small_gpt2(more));
  return open_choices(arguments, config::resolve(arguments, 4, 256), limits);
}

template <class Member>
std::size_t values(std::vector<Choice> const& list, Member Choice::*member) {
  std::vector<Member> found;
  for (auto const& c : list)
    if (std::find(found.begin(), found.end(), c.*member) == found.end()) found.push_back(c.*member);
  return found.size();
}

TEST(Choices, AreAllThatTheArgumentsLeaveOpen) {
  auto const all = choices({});
  EXPECT_EQ(all.size(), 8u * 3 * 4) << "stages with offload, recomputation, divisors of 8";
  for (auto const& c : all) EXPECT_EQ(c.micro_batch * c.accumulation, 8);
  EXPECT_EQ(choices({}, {true, true}).size(), 13u * 3 * 4);
  EXPECT_EQ(choices({}, {false, false}).size(), 4u * 3 * 4) << "a host offloads to nothing";
  EXPECT_EQ(choices({}, {false, true}).size(), (1 + 2 + 2 + 4) * 3u * 4)
      << "weights leave the host's memory at stage 3";
}

TEST(Choices, WhatIsGivenIsTheOnlyChoice) {
  for (auto const& given : {std::vector<std::string>{"--gradient_checkpointing"},
                            {"--gradient_checkpointing", "false"},
                            {"--recompute", "light"}})
    EXPECT_EQ(values(choices(given), &Choice::recompute), 1u);
  EXPECT_EQ(values(choices({"--per_device_train_batch_size", "6"}), &Choice::micro_batch), 1u);
  EXPECT_EQ(values(choices({"--gradient_accumulation_steps", "2"}), &Choice::micro_batch), 5u)
      << "divisors of 16";
  auto const fixed =
      choices({"--deepspeed",
               R"({"zero_optimization": {"stage": 2, "offload_optimizer": {"device": "cpu"}},
           "train_micro_batch_size_per_gpu": 8})"});
  ASSERT_EQ(fixed.size(), 3u) << "of every recomputation";
  EXPECT_EQ(fixed[0].stage, 2);
  EXPECT_EQ(fixed[0].optimizer, OffloadDevice::cpu);
}

TEST(Choices, HaveTheGuidesOrderOfSpeed) {
  std::vector<Choice> order{{.stage = 0},
                            {.stage = 1},
                            {.stage = 2},
                            {.stage = 2, .optimizer = OffloadDevice::cpu},
                            {.stage = 3},
                            {.stage = 3, .optimizer = OffloadDevice::cpu},
                            {.stage = 3, .optimizer = OffloadDevice::nvme}};
  EXPECT_TRUE(std::is_sorted(order.begin(), order.end(), is_faster_by_the_guides));
  EXPECT_TRUE(is_faster_by_the_guides({.micro_batch = 4}, {.micro_batch = 2}));
  EXPECT_TRUE(is_faster_by_the_guides({}, {.recompute = Recompute::light}));
  EXPECT_TRUE(
      is_faster_by_the_guides({.recompute = Recompute::light}, {.recompute = Recompute::block}));
  EXPECT_EQ(ladder_step_of(order[3]), "stage 2 + offload");
}

TEST(Choices, BecomeARunOfTheSameBatch) {
  auto const arguments = config::parse_options(test::small_gpt2(
      {"--deepspeed", R"({"zero_optimization": {"stage": 1, "reduce_bucket_size": 12345678},
                          "gradient_accumulation_steps": 2, "bf16": {"enabled": true}})"}));
  Choice const choice{.stage = 3,
                      .optimizer = OffloadDevice::nvme,
                      .recompute = Recompute::block,
                      .micro_batch = 4,
                      .accumulation = 4};
  auto const made = arguments_of(arguments, choice);
  auto const resolved = config::resolve(made, 4, 256);
  EXPECT_EQ(resolved.stage, 3);
  EXPECT_EQ(resolved.offload.optimizer, OffloadDevice::nvme);
  EXPECT_EQ(resolved.micro_batch_size, 4);
  EXPECT_EQ(resolved.accumulation_steps, 4);
  EXPECT_EQ(resolved.reduce_bucket_size, 12'345'678) << "other keys stay";
  EXPECT_EQ(given_choice(made, resolved), choice);
  auto const plain = config::parse_options(test::small_gpt2());
  auto const sharded = config::resolve(arguments_of(plain, {.stage = 2}), 4, 256);
  EXPECT_EQ(sharded.dtype, Dtype::bf16) << "a DeepSpeed configuration casts the model";
}

}  // namespace
}  // namespace tessera::plan
