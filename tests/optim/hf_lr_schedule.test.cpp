#include "tessera/optim/schedule.hpp"

#include "schedule_fixture.hpp"

namespace tessera::optim {
namespace {

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

TEST(HfSchedule, RefusesByName) {
  expect_contains(refusal([] { hf_schedule("quadratic", 1e-3, 0, 10); }),
                  "lr_scheduler_type is quadratic, which is not known; known are linear, cosine, "
                  "cosine_with_restarts, polynomial, constant, "
                  "constant_with_warmup, inverse_sqrt");
  expect_contains(refusal([] { hf_schedule("reduce_lr_on_plateau", 1e-3, 0, 10); }),
                  "evaluation results");
  expect_contains(refusal([] { hf_schedule("linear", -1.0, 0, 10); }), "learning_rate is -1");
  expect_contains(refusal([] { hf_schedule("linear", 1e-3, -1, 10); }), "-1 warm-up steps");
  expect_contains(refusal([] { hf_schedule("polynomial", 1e-8, 0, 10); }),
                  "lr_scheduler_kwargs.lr_end is 1e-07");
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
