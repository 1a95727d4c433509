#include "tessera/train/loop/update_watch.hpp"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <limits>

#include "tessera/core/error.hpp"

namespace tessera::train {
namespace {

using ::testing::AllOf;
using ::testing::HasSubstr;

constexpr double nan = std::numeric_limits<double>::quiet_NaN();

enum class Update { applied, skipped };

StepOutcome outcome(Update update, double loss = 4.0) {
  bool const skipped = update == Update::skipped;
  return {.loss = loss,
          .update = {.grad_norm = skipped ? std::numeric_limits<double>::infinity() : 1.0,
                     .loss_scale = 1.0,
                     .skipped = skipped}};
}

struct Watch : ::testing::Test {
  /// The step that ends the run; 0: none of @p steps.
  std::int64_t end(UpdateWatch::Options const& options, StepOutcome const& each,
                   std::int64_t steps = 100) {
    UpdateWatch watch(options, state);
    for (std::int64_t step = 1; step <= steps; ++step) {
      watch.count(each);
      try {
        watch.require_progress(step, each);
      } catch (ConfigError const& e) {
        message = e.what();
        return step;
      }
    }
    return 0;
  }
  static UpdateWatch::Options fixed(Dtype dtype) { return {.dtype = dtype}; }
  static UpdateWatch::Options dynamic() {
    return {.dtype = Dtype::fp16, .loss_scaler = {.dynamic = true}};
  }

  TrainingState state;
  std::string message;
};

TEST_F(Watch, CountsUpdatesAndSkipsInARow) {
  UpdateWatch watch(fixed(Dtype::fp32), state);
  for (Update const u : {Update::applied, Update::skipped, Update::skipped})
    watch.count(outcome(u));
  EXPECT_EQ(state.applied_steps, 1);
  EXPECT_EQ(state.skipped_in_a_row, 2);
  watch.count(outcome(Update::applied));
  EXPECT_EQ(state.applied_steps, 2);
  EXPECT_EQ(state.skipped_in_a_row, 0);
}

TEST_F(Watch, WithoutADynamicScaleTenSkipsInARowAreTolerated) {
  for (Dtype const dtype : {Dtype::fp32, Dtype::bf16, Dtype::fp16}) {
    state = {};
    EXPECT_EQ(end(fixed(dtype), outcome(Update::skipped)), 11) << name_of(dtype);
    EXPECT_THAT(message, AllOf(HasSubstr("last 11 steps up to step 11"),
                               HasSubstr("--max_skipped_steps"), HasSubstr("--learning_rate")));
  }
  EXPECT_THAT(message, HasSubstr("static loss scale is 1"));
}

TEST_F(Watch, ADynamicScaleFallsToItsMinimumFirst) {
  EXPECT_EQ(end(dynamic(), outcome(Update::skipped)), 0) << "the scaler itself ends the run";
}

TEST_F(Watch, ALossThatIsNotFiniteEndsTheRun) {
  EXPECT_EQ(end(fixed(Dtype::fp32), outcome(Update::skipped, nan)), 1);
  EXPECT_THAT(message, HasSubstr("the loss of step 1 is NaN (gradient norm infinity"));
  EXPECT_EQ(end(fixed(Dtype::bf16), outcome(Update::applied, -1.0 / 0.0)), 1);
  EXPECT_EQ(end(fixed(Dtype::fp16), outcome(Update::skipped, nan)), 1) << "a static scale";
  EXPECT_EQ(end(dynamic(), outcome(Update::applied, nan)), 1);
  state = {};
  EXPECT_EQ(end(dynamic(), outcome(Update::skipped, nan)), 3) << "two other batches get a chance";
}

TEST_F(Watch, TheOptionDecidesForAll) {
  for (std::int64_t const most : {0, 3, 20}) {
    for (auto options : {fixed(Dtype::fp32), fixed(Dtype::fp16), dynamic()}) {
      options.max_skipped_steps = most;
      for (double const loss : {4.0, nan}) {
        state = {};
        EXPECT_EQ(end(options, outcome(Update::skipped, loss)), most + 1);
      }
    }
  }
}

TEST_F(Watch, SkipsBeforeAResumeCount) {
  state.skipped_in_a_row = 9;
  EXPECT_EQ(end(fixed(Dtype::bf16), outcome(Update::skipped)), 2);
}

TEST_F(Watch, ARunWithoutAnUpdateIsNotDone) {
  UpdateWatch watch(fixed(Dtype::fp32), state);
  EXPECT_NO_THROW(watch.training_done(0)) << "nothing to train";
  EXPECT_THROW(watch.training_done(6), ConfigError);
  state.applied_steps = 1;
  EXPECT_NO_THROW(watch.training_done(6));
}

TEST_F(Watch, NamesTheCauseThatItKnows) {
  auto options = dynamic();
  EXPECT_THAT(UpdateWatch(options, state).advice(), HasSubstr("or --bf16"));
  options.weights = {"gpt2-bf16", Dtype::bf16};
  EXPECT_THAT(UpdateWatch(options, state).advice(),
              AllOf(HasSubstr("gpt2-bf16 are stored as bf16"), HasSubstr("--bf16")));
  options.dtype = Dtype::bf16;
  EXPECT_THAT(UpdateWatch(options, state).advice(), ::testing::Not(HasSubstr("stored")));
  options.weights.problem = "wte has NaN";
  EXPECT_EQ(UpdateWatch(options, state).advice(), "wte has NaN");
}

}  // namespace
}  // namespace tessera::train
