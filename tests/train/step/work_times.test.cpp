#include "tessera/train/step/pass_timer.hpp"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <chrono>
#include <thread>

#include "small_run.hpp"
#include "tessera/train/step/training_step.hpp"

namespace tessera::train {
namespace {

using namespace std::chrono_literals;
using ::testing::HasSubstr;

TEST(WorkTimes, AStepIsTheSumOfItsParts) {
  test::SmallRun run;
  auto const sequences = test::small_sequences(run.files, 16);
  data::SamplerConfig config;
  config.samples = sequences.count();
  config.micro_batch = 4;
  config.epochs = 1;
  data::Sampler sampler(config);
  TrainingStep step(run.context(), *run.engine, sequences, {.micro_batch_size = 4});
  WorkClock clock;
  clock.begin();
  auto const started = std::chrono::steady_clock::now();
  step.run(1, sampler, 1e-3);
  double const seconds =
      std::chrono::duration<double>(std::chrono::steady_clock::now() - started).count();
  auto const times = clock.end(seconds);
  for (auto const work : {kernels::Work::products, kernels::Work::attention, kernels::Work::head,
                          kernels::Work::elementwise, kernels::Work::optimizer})
    EXPECT_GT(times.kernels[static_cast<std::size_t>(work)], 0.0) << name_of(work);
  EXPECT_NEAR(times.total(), seconds, 1e-9);
  EXPECT_THAT(times.text(), HasSubstr(" %, optimizer "));
  EXPECT_EQ(times.tree().at("waits").as_double(), times.waits);
}

TEST(WorkTimes, WaitsForOtherQueuesAreCounted) {
  auto const compute = memory::make_inline_queue("compute"),
             other = memory::make_worker_queue("other");
  WorkClock clock;
  clock.begin();
  // The time of these waits is what is measured.
  other->submit([] { std::this_thread::sleep_for(200ms); });
  compute->wait(other->record());
  other->submit([] { std::this_thread::sleep_for(200ms); });
  other->record().wait("test", 30s);
  auto const times = clock.end(60.0);
  EXPECT_GE(times.waits, 0.3) << "both waits count; a sleep may begin before its wait";
  EXPECT_NEAR(times.waits + times.rest, 60.0, 1e-3);
}

}  // namespace
}  // namespace tessera::train
