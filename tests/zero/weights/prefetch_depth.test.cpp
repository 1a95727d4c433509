/// The prefetch depth from times of a pass, against closed formulas and a simulation in small
/// steps of time.
#include "weights/prefetch_depth.hpp"

#include <gtest/gtest.h>

#include <algorithm>
#include <random>

namespace tessera::zero::detail {
namespace {

/// The buffers allow @p most acquisitions ahead.
MeasuredPass pass_of(std::vector<double> transfer, std::vector<double> compute, std::size_t most) {
  MeasuredPass out{std::move(transfer), std::move(compute), {}};
  for (std::size_t i = 0; i < out.compute.size(); ++i)
    out.earliest.push_back(i > most ? i - most : 0);
  return out;
}

TEST(PrefetchDepth, OneUnitAheadHidesTransfersThatAreShorterThanTheComputation) {
  auto const pass = pass_of(std::vector<double>(10, 3.0), std::vector<double>(10, 4.0), 6);
  EXPECT_DOUBLE_EQ(waiting(pass, 1), 3.0);  // the first one
  EXPECT_EQ(largest_depth(pass), 6u);
  EXPECT_EQ(prefetch_depth(pass), 1u);
}

/// The link is busy all the time with any depth: 10 transfers, the computation of the last one
/// follows.
TEST(PrefetchDepth, NoDepthHidesTransfersThatAreLonger) {
  auto const pass = pass_of(std::vector<double>(10, 5.0), std::vector<double>(10, 2.0), 6);
  EXPECT_DOUBLE_EQ(waiting(pass, 1), 10 * 5.0 + 2.0 - 10 * 2.0);
  EXPECT_DOUBLE_EQ(waiting(pass, 6), waiting(pass, 1));
  EXPECT_EQ(prefetch_depth(pass), 1u);
}

/// A large unit needs the time of the computations of three units before it.
TEST(PrefetchDepth, ALargeUnitStartsSeveralUnitsAhead) {
  std::vector<double> transfer(12, 0.0), compute(12, 10.0);
  transfer[8] = 30.0;
  EXPECT_EQ(prefetch_depth(pass_of(transfer, compute, 6)), 3u);
  EXPECT_EQ(prefetch_depth(pass_of(transfer, compute, 2)), 2u) << "the buffers allow no more";
  EXPECT_DOUBLE_EQ(waiting(pass_of(transfer, compute, 2), 2), 10.0);
}

TEST(PrefetchDepth, UnitsThatAreStillThereNeedNone) {
  EXPECT_EQ(prefetch_depth(pass_of({0, 0, 0}, {1, 1, 1}, 3)), 1u);
  EXPECT_DOUBLE_EQ(waiting(pass_of({0, 0, 0}, {1, 1, 1}, 3), 1), 0.0);
  EXPECT_EQ(prefetch_depth(pass_of({}, {}, 3)), 1u);
}

/// In ticks: transfers and computation each take one away per tick.
int waiting_in_ticks(std::vector<int> const& transfer, std::vector<int> const& compute,
                     std::size_t depth, std::size_t most) {
  std::size_t const count = compute.size(), ahead = std::min(depth, most);
  std::vector<int> left = transfer;
  int waited = 0, computing = 0;
  std::size_t at = 0;  // acquisition that the computation has reached
  bool leased = false;
  while (at < count) {
    if (!leased && left[at] == 0) leased = true, computing = compute[at];
    if (leased && computing == 0) {
      leased = false;
      ++at;
      continue;
    }
    for (std::size_t i = 0; i < count; ++i)  // the first one that is not complete
      if (left[i] > 0) {
        if (i <= at + ahead) --left[i];
        break;
      }
    if (leased)
      --computing;
    else
      ++waited;
  }
  return waited;
}

TEST(PrefetchDepth, WaitsAsLongAsASimulationInTicks) {
  std::mt19937 random(7);
  for (int round = 0; round < 300; ++round) {
    std::vector<int> transfer, compute;
    for (int i = 0; i < 12; ++i) {
      transfer.push_back(static_cast<int>(random() % 3 == 0 ? 0 : random() % 9));
      compute.push_back(static_cast<int>(1 + random() % 6));
    }
    std::size_t const most = 1 + random() % 5;
    auto const pass =
        pass_of({transfer.begin(), transfer.end()}, {compute.begin(), compute.end()}, most);
    for (std::size_t depth = 1; depth <= 6; ++depth)
      ASSERT_DOUBLE_EQ(waiting(pass, depth), waiting_in_ticks(transfer, compute, depth, most))
          << "round " << round << ", depth " << depth;
    auto const chosen = prefetch_depth(pass);
    ASSERT_LE(chosen, largest_depth(pass));
    double const all = 12 * 7.0;
    ASSERT_LE(waiting(pass, chosen) - waiting(pass, largest_depth(pass)), 0.02 * all);
  }
}

}  // namespace
}  // namespace tessera::zero::detail
