#include "tessera/train/step/step_requests.hpp"

#include <gtest/gtest.h>

#include <bit>
#include <csignal>

#include "mpi_test.hpp"
#include "recording_collectives.hpp"
#include "small_run.hpp"
#include "tessera/comm/compose/host_collectives.hpp"
#include "tessera/core/error.hpp"
#include "tessera/train/step/stop_request.hpp"
#include "tessera/train/step/training_step.hpp"

namespace tessera::train {
namespace {

TEST(StepRequests, AllRanksActOnWhatAnyRankAsks) {
  auto const comm = comm::make_mpi(test::session(), std::chrono::seconds(60));
  int const last = comm->size() - 1;
  bool const root = comm->rank() == 0, is_last = comm->rank() == last;
  EXPECT_EQ(agree_on_requests(*comm, {}), StepRequests{});
  EXPECT_EQ(agree_on_requests(*comm, {.stop = is_last ? SIGTERM : 0, .lock_lost = root}),
            (StepRequests{.stop = SIGTERM, .lock_lost = true}));
  EXPECT_EQ(agree_on_requests(*comm, {.stop = root ? 1000 : SIGINT, .save = is_last}),
            (StepRequests{.stop = 1000, .save = true}));
  EXPECT_EQ(agree_on_requests(*comm, {.disk_busy = root}), (StepRequests{.disk_busy = true}));
}

TEST(StepRequests, TheHighestOfSeveralStopsCounts) {
  RequestCounts sums{};
  for (int const stop : {SIGHUP, SIGINT, SIGUSR1, SIGTERM, SIGXCPU, StopRequest::time_limit}) {
    auto const counts = counts_of({.stop = stop, .seconds = 0.5});
    for (std::size_t i = 0; i < sums.size(); ++i) sums[i] += counts[i];
    EXPECT_EQ(requests_of(sums, 1).stop, stop) << "sums of this one and all before it";
  }
  EXPECT_EQ(requests_of(sums, 6).seconds, 0.5) << "the mean";
  EXPECT_THROW((void)counts_of({.stop = SIGKILL}), InternalError);
}

/// Operations of a step that reduce something else than gradients, and its outcome.
struct ReducedStep {
  std::vector<comm::CollectiveRecord> all_reduces;
  StepOutcome outcome;
};

ReducedStep reduced_step(zero::SumOrder order, std::function<StepRequests()> const& requests) {
  zero::EngineConfig config;
  config.partition = zero::partition_of(1);  // gradients take a reduce-scatter and an all-gather
  config.overlap_comm = false;  // no all-reduce of the tokens' rows of a tied embedding
  config.sum_order = order;
  auto recording = comm::make_recording(comm::make_mpi(test::session(), std::chrono::seconds(60)));
  auto* const records = recording.get();
  test::SmallRun run(config, std::move(recording));
  auto const sequences = test::small_sequences(run.files, 16);
  data::Sampler plan({.samples = 24, .ranks = run.comm->size(), .micro_batch = 2});
  auto options = TrainingStep::Options{.micro_batch_size = 2, .requests = requests};
  TrainingStep step(run.context(), *run.engine, sequences, options);
  records->clear();
  ReducedStep out;
  out.outcome = step.run(1, plan, 1e-2);
  for (auto const& r : records->records())
    if (r.operation == "all_reduce") out.all_reduces.push_back(r);
  return out;
}

TEST(StepRequests, TravelWithTheNormAndTheLossInOneAllReduce) {
  auto const& info = test::session().info();
  bool const is_last = info.rank == info.world_size - 1;
  for (auto const order : {zero::SumOrder::ranks, zero::SumOrder::tree}) {
    if (order == zero::SumOrder::tree &&
        !std::has_single_bit(static_cast<unsigned>(info.world_size)))
      continue;
    auto const asked = reduced_step(
        order, [&] { return StepRequests{.stop = is_last ? SIGTERM : 0, .save = info.rank == 0}; });
    EXPECT_EQ(asked.all_reduces.size(), 1u);
    ASSERT_TRUE(asked.outcome.requests.has_value());
    EXPECT_EQ(asked.outcome.requests->stop, SIGTERM);
    EXPECT_TRUE(asked.outcome.requests->save);
    EXPECT_FALSE(asked.outcome.requests->disk_busy);
    EXPECT_GT(asked.outcome.requests->seconds, 0.0);
    auto const silent = reduced_step(order, {});
    EXPECT_EQ(silent.all_reduces.size(), 1u);
    EXPECT_FALSE(silent.outcome.requests.has_value());
    EXPECT_EQ(silent.outcome.loss, asked.outcome.loss);
    EXPECT_EQ(silent.outcome.update.grad_norm, asked.outcome.update.grad_norm);
  }
}

}  // namespace
}  // namespace tessera::train
