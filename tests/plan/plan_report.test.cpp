#include "tessera/plan/plan_report.hpp"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "plan_fixture.hpp"

namespace tessera::plan {
namespace {

using ::testing::ElementsAre;
using ::testing::HasSubstr;
using ::testing::Not;

TEST(PlanReport, SaysWhatFitsAndWhatNot) {
  auto request = test::request(test::small_gpt2());
  request.machine = test::round_machine();
  request.limits.device = std::int64_t{48} << 20;
  request.train_tokens = 40'960;
  request.machine->save_bandwidth = 1e9;
  request.machine->node_failure_hours = 1000;
  Planner planner(std::move(request));
  auto const choices = planner.compare();
  auto const* const best = recommended(choices);
  ASSERT_NE(best, nullptr);
  auto const table = table_text(planner, choices);
  EXPECT_THAT(table, HasSubstr("gpt2, 4,240,896 parameters, AdamW; 4 ranks (1 node x 4)"));
  EXPECT_THAT(table, HasSubstr("too large"));
  EXPECT_THAT(table, HasSubstr("fits  <- recommended"));
  EXPECT_THAT(table, HasSubstr("times of round, which is not measured"));
  auto const text = recommendation_text(planner, choices, *best);
  EXPECT_THAT(text, HasSubstr("10 steps take"));
  EXPECT_THAT(text, HasSubstr("node-hours"));
  EXPECT_THAT(text, HasSubstr("--save_steps "));
  EXPECT_GT(to_json(planner, choices, {}, best).at("saving").at("interval").as_double(), 0.0);
  EXPECT_THAT(text, HasSubstr("stage 0 needs"));
  EXPECT_THAT(ladder_text(planner, ladder(planner)), HasSubstr("stage 2 + offload_optimizer"));
}

TEST(PlanReport, WithoutLimitSaysSo) {
  Planner planner(test::request(test::small_gpt2()));
  auto const choices = planner.compare();
  EXPECT_THAT(table_text(planner, choices), Not(HasSubstr("fits")));
  EXPECT_THAT(recommendation_text(planner, choices, *recommended(choices)),
              HasSubstr("give --device_memory or --machine"));
}

TEST(PlanReport, JsonHasEveryNumberOfTheTable) {
  auto request = test::request(test::small_gpt2());
  request.machine = test::round_machine();
  Planner planner(std::move(request));
  auto const choices = planner.compare();
  auto const json = to_json(planner, choices, ladder(planner), recommended(choices));
  ASSERT_EQ(json.at("choices").as_array().size(), choices.size());
  for (std::size_t i = 0; i < choices.size(); ++i) {
    auto const& c = json.at("choices").as_array()[i];
    EXPECT_EQ(c.at("stage").as_int(), choices[i].choice.stage);
    EXPECT_EQ(c.at("device").at("total").as_int(), choices[i].device_bytes);
    EXPECT_DOUBLE_EQ(c.at("time").at("step").as_double(), choices[i].time->seconds);
    std::int64_t sum = 0;
    for (auto const& [purpose, bytes] : c.at("device").as_object())
      if (purpose != "total") sum += bytes.as_int();
    EXPECT_EQ(sum, c.at("device").at("total").as_int());
  }
  EXPECT_EQ(json.at("recommended").at("stage").as_int(), recommended(choices)->choice.stage);
  EXPECT_EQ(json.at("checkpoint_bytes").as_int(), 12 * 4'240'896);
}

TEST(TrainingWords, ReplaceWhatTheChoiceDecides) {
  std::vector<std::string> const words{"--bf16",
                                       "--deepspeed",
                                       "old.json",
                                       "--per-device-train-batch-size=8",
                                       "--gradient_checkpointing",
                                       "--block_size",
                                       "128"};
  EXPECT_THAT(
      training_words(words, config::parse_options({"--bf16"}),
                     {.stage = 2, .micro_batch = 4, .accumulation = 2}, "new.json"),
      ElementsAre("--bf16", "--block_size", "128", "--deepspeed", "new.json",
                  "--per_device_train_batch_size", "4", "--gradient_accumulation_steps", "2"));
  EXPECT_THAT(training_words({"--recompute", "block"}, config::parse_options({"--bf16"}),
                             {.stage = 2, .recompute = Recompute::light}, "new.json"),
              ElementsAre("--deepspeed", "new.json", "--per_device_train_batch_size", "1",
                          "--gradient_accumulation_steps", "1", "--recompute", "light"));
}

}  // namespace
}  // namespace tessera::plan
