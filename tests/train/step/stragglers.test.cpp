#include "tessera/train/step/stragglers.hpp"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "mpi_test.hpp"
#include "tessera/comm/compose/host_collectives.hpp"
#include "tessera/train/step/step_requests.hpp"

namespace tessera::train {
namespace {

using ::testing::HasSubstr;
using ::testing::IsEmpty;

TEST(SlowerRanks, AreThoseWhoseOwnTimeIsAboveTheMedianOfTheOthers) {
  auto const found =
      slower_ranks({{0.20, 0.0}, {0.21, 0.0}, {0.42, 0.0}, {0.19, 0.0}}, {"a", "a", "b", "b"});
  ASSERT_EQ(found.size(), 1u);
  EXPECT_EQ(found[0].rank, 2);
  EXPECT_EQ(found[0].node, "b");
  EXPECT_EQ(found[0].what, "computing");
  EXPECT_DOUBLE_EQ(found[0].others, 0.20);
  EXPECT_THAT(text_of(found[0]), HasSubstr("rank 2 on node b is 2.1 times slower"));
  auto const reading = slower_ranks({{0.2, 0.3}, {0.2, 0.0}}, {});
  ASSERT_EQ(reading.size(), 1u);
  EXPECT_EQ(reading[0].what, "reading samples");
  EXPECT_EQ(tree_of(reading).as_array()[0].get_int("rank", -1), 0);
}

TEST(SlowerRanks, AreNoneWhereDifferencesAreSmall) {
  EXPECT_THAT(slower_ranks({{0.20, 0.0}, {0.24, 0.0}, {0.22, 0.0}}, {}), IsEmpty());
  EXPECT_THAT(slower_ranks({{0.001, 0.0}, {0.004, 0.0}}, {}), IsEmpty()) << "3 ms";
  EXPECT_THAT(slower_ranks({{0.0, 0.0}, {0.0, 0.0}}, {}), IsEmpty()) << "nothing is known";
  EXPECT_THAT(slower_ranks({{1.0, 0.0}}, {}), IsEmpty());
}

/// The steps of all ranks with own times of @p own(step).
struct Watched {
  template <class Own>
  std::vector<Straggler> step(std::int64_t number, Own const& own) {
    StepOutcome outcome;
    outcome.own = {own(number), 0.0};
    StepRequests mine;
    mine.own_seconds = outcome.own.total();
    mine.is_slow = watch.is_slow();
    outcome.requests = agree_on_requests(*comm, mine);
    return watch.after_step(number, outcome);
  }
  std::unique_ptr<comm::Collectives> comm =
      comm::make_mpi(test::session(), std::chrono::seconds(60));
  StragglerWatch watch{*comm,
                       std::vector<std::string>(static_cast<std::size_t>(comm->size()), "n")};
};

TEST(StragglerWatch, NamesARankWithinTwentyStepsAndForgetsIt) {
  Watched run;
  if (run.comm->size() == 1) GTEST_SKIP() << "one rank has no others";
  int const slow = run.comm->size() - 1;
  constexpr std::int64_t from = 30, until = 60;
  auto const own = [&](std::int64_t step) {
    bool const throttled = run.comm->rank() == slow && step >= from && step < until;
    return throttled ? 0.2 : 0.1 + (step % 3 == run.comm->rank() ? 0.004 : 0.0);
  };
  std::int64_t named = 0;
  for (std::int64_t step = 1; step < 150; ++step) {
    auto const found = run.step(step, own);
    EXPECT_TRUE(found.empty() || found[0].rank == slow) << step;
    EXPECT_TRUE(found.empty() || step >= from) << "a false alarm in step " << step;
    if (!found.empty() && named == 0) named = step;
  }
  EXPECT_GE(named, from);
  EXPECT_LE(named, from + 20);
  EXPECT_THAT(run.watch.current(), IsEmpty()) << "it has been as fast as the others for long";
}

/// The steps of four ranks on three nodes. From step 30 to 59 all wait for longer.
struct Network {
  std::vector<Straggler> step(std::int64_t number) {
    StepOutcome outcome;
    outcome.own = {0.1, 0.0};
    outcome.requests = StepRequests{};
    outcome.requests->own_seconds = 0.1;
    outcome.requests->seconds = number >= 30 && number < 60 ? 0.3 : 0.15;
    return watch.after_step(number, outcome);
  }
  std::vector<double> round_trips{0.001, 0.001, 0.001};
  std::vector<std::int64_t> probes;
  std::int64_t now = 0;
  std::unique_ptr<comm::Collectives> comm =
      comm::make_mpi(test::session(), std::chrono::seconds(60));
  StragglerWatch watch{*comm, {"a", "a", "b", "c"}, [&](auto&, std::vector<int> const& ring) {
                         EXPECT_THAT(ring, testing::ElementsAre(0, 2, 3));
                         probes.push_back(now);
                         return round_trips;
                       }};
};

TEST(StragglerWatch, LongerWaitsNameTheNodeWhoseLinksAreSlow) {
  Network run;
  run.round_trips = {0.020, 0.030, 0.001};  // a to b, b to c, c to a
  std::int64_t named = 0;
  for (run.now = 1; run.now < 120; ++run.now) {
    auto const found = run.step(run.now);
    if (!found.empty() && named == 0) {
      named = run.now;
      EXPECT_EQ(found[0].rank, 2);
      EXPECT_EQ(found[0].node, "b");
      EXPECT_EQ(found[0].what, "network");
      EXPECT_DOUBLE_EQ(found[0].factor(), 20.0);
      EXPECT_THAT(text_of(found[0]), HasSubstr("the network of node b is 20.0 times slower"));
      run.round_trips = {0.001, 0.001, 0.001};
    }
  }
  EXPECT_GE(named, 30);
  EXPECT_LE(named, 50);
  EXPECT_GE(run.probes[0], 30) << "no messages while nothing is unusual";
  EXPECT_EQ(run.probes.size(), 3u) << "two that agree, and one that finds equal links";
  EXPECT_THAT(run.watch.current(), IsEmpty());
}

TEST(StragglerWatch, LongerWaitsWithEqualLinksNameNobody) {
  Network run;
  for (run.now = 1; run.now < 120; ++run.now) EXPECT_THAT(run.step(run.now), IsEmpty());
  EXPECT_GE(run.probes.size(), 1u);
  EXPECT_LE(run.probes.size(), 2u);
}

TEST(StragglerWatch, OneLongStepNamesNobody) {
  Watched run;
  for (std::int64_t step = 1; step < 60; ++step)
    EXPECT_THAT(
        run.step(step,
                 [&](std::int64_t s) { return run.comm->rank() == 0 && s % 20 == 0 ? 0.3 : 0.1; }),
        IsEmpty())
        << step;
}

}  // namespace
}  // namespace tessera::train
