/// What the window gathers, keeps and releases: sequences by hand, without buffers and ranks.
#include "weights/gather_window.hpp"

#include <gtest/gtest.h>

namespace tessera::zero::detail {
namespace {

constexpr std::size_t any = GatherWindow::any_depth;

std::vector<UnitIndex> units(std::vector<int> const& indices) {
  std::vector<UnitIndex> out;
  for (int const i : indices) out.push_back(UnitIndex(i));
  return out;
}

/// Four units of 10 elements, and an owner that gathers and drops as the window says.
struct Owner {
  explicit Owner(GatherWindow::Limits limits, std::vector<std::int64_t> numel = {10, 10, 10, 10})
      : window(numel, limits) {}

  void prefetch(std::size_t depth = any) {
    for (UnitIndex const unit : window.next_gathers(depth)) window.add(unit);
  }
  void acquire(int unit, std::size_t depth = any) {
    window.advance();
    if (!window.is_gathered(UnitIndex(unit))) window.add(UnitIndex(unit));
    (void)window.lease(UnitIndex(unit));
    prefetch(depth);
  }
  void release(int unit) {
    window.release(UnitIndex(unit));
    if (window.is_idle(UnitIndex(unit))) window.remove(UnitIndex(unit));
  }
  std::vector<UnitIndex> gathered() const {
    std::vector<UnitIndex> out;
    for (int u = 0; u < 4; ++u)
      if (window.is_gathered(UnitIndex(u))) out.push_back(UnitIndex(u));
    return out;
  }
  GatherWindow window;
};

TEST(GatherWindow, GathersTheNextUnitsUpToTheLimitAhead) {
  Owner owner({.ahead = 20, .live = 100});
  owner.window.begin_pass(units({2, 0, 3, 1}));
  EXPECT_EQ(owner.window.next_gathers(any), units({2, 0}));
  owner.prefetch();
  EXPECT_EQ(owner.window.live_numel(), 20);
  owner.acquire(2);
  EXPECT_EQ(owner.gathered(), units({0, 2, 3})) << "a leased unit is not ahead";
}

TEST(GatherWindow, GathersOneUnitAheadWhateverItsSize) {
  Owner owner({.ahead = 0, .live = 100}, {10, 50, 10, 10});
  owner.window.begin_pass(units({1, 0}));
  EXPECT_EQ(owner.window.next_gathers(any), units({1}));
}

TEST(GatherWindow, GathersNothingAheadBeyondTheLiveElements) {
  Owner owner({.ahead = 100, .live = 25});
  owner.window.begin_pass(units({0, 1, 2, 3}));
  owner.prefetch();
  EXPECT_EQ(owner.gathered(), units({0, 1}));
  owner.acquire(0);
  owner.release(0);
  EXPECT_EQ(owner.gathered(), units({1}));
  owner.acquire(1);
  EXPECT_EQ(owner.gathered(), units({1, 2}));
}

TEST(GatherWindow, StartsNoGatherBeyondTheDepth) {
  Owner owner({.ahead = 100, .live = 100});
  owner.window.begin_pass(units({0, 1, 2, 3}));
  EXPECT_EQ(owner.window.next_gathers(2), units({0, 1}));
  owner.acquire(0, 1);
  EXPECT_EQ(owner.gathered(), units({0, 1}));
  EXPECT_EQ(owner.window.next_gathers(0), units({}));
}

TEST(GatherWindow, CountsAUnitThatComesTwiceOnce) {
  Owner owner({.ahead = 20, .live = 100});
  owner.window.begin_pass(units({0, 1, 0, 1, 2}));
  EXPECT_EQ(owner.window.next_gathers(any), units({0, 1}));
  std::vector<std::size_t> distances;
  auto const visit = [&](UnitIndex, std::size_t distance) {
    distances.push_back(distance);
    return true;
  };
  owner.window.look_ahead(any, visit);
  EXPECT_EQ(distances, (std::vector<std::size_t>{0, 1, 4}));
  owner.acquire(0);
  distances.clear();
  owner.window.look_ahead(any, visit);
  EXPECT_EQ(distances, (std::vector<std::size_t>{0, 1, 3})) << "past acquisitions do not count";
}

TEST(GatherWindow, KeepsAUnitThatIsAcquiredAgainSoonOrIsAffordable) {
  for (std::int64_t const ahead : {0, 40}) {
    Owner owner({.ahead = ahead, .live = 100});
    owner.window.begin_pass(units({0, 1, 2, 3, 3, 2, 1, 0}));
    for (int u = 0; u < 4; ++u) owner.acquire(u), owner.release(u);
    EXPECT_EQ(owner.gathered(), ahead > 0 ? units({0, 1, 2, 3}) : units({2, 3}))
        << "backward starts with the last units";
  }
}

TEST(GatherWindow, OnlyTheFirstLeaseWaitsForTheGather) {
  Owner owner({.ahead = 0, .live = 100});
  owner.window.begin_pass(units({0, 0}));
  owner.window.add(UnitIndex(0));
  EXPECT_TRUE(owner.window.lease(UnitIndex(0)));
  EXPECT_FALSE(owner.window.lease(UnitIndex(0)));
  owner.window.release(UnitIndex(0));
  EXPECT_TRUE(owner.window.is_leased(UnitIndex(0)));
  EXPECT_FALSE(owner.window.is_idle(UnitIndex(0)));
}

/// Each drop may make room for a unit that would have been dropped after it.
TEST(GatherWindow, ANewPassLeavesUnitsIdleUntilTheOthersFit) {
  Owner owner({.ahead = 100, .live = 25});
  owner.window.begin_pass(units({}));
  for (int u = 0; u < 4; ++u) owner.window.add(UnitIndex(u));
  owner.window.begin_pass(units({2, 1, 3}));
  EXPECT_TRUE(owner.window.is_idle(UnitIndex(0))) << "it does not come";
  EXPECT_FALSE(owner.window.is_idle(UnitIndex(1))) << "it comes second";
  EXPECT_TRUE(owner.window.is_idle(UnitIndex(3)));
  owner.window.remove(UnitIndex(0));
  owner.window.remove(UnitIndex(1));
  EXPECT_FALSE(owner.window.is_idle(UnitIndex(3))) << "20 elements are live";
}

TEST(GatherWindow, GathersUpdatedUnitsForTheNextPassInItsOrder) {
  Owner owner({.ahead = 100, .live = 100});
  owner.window.begin_pass(units({1, 0, 2}));
  for (int const u : {1, 0, 2}) owner.acquire(u), owner.release(u);
  EXPECT_EQ(owner.gathered(), units({}));
  owner.window.begin_updates();
  EXPECT_TRUE(owner.window.is_updating());
  owner.window.set_updated(UnitIndex(0));
  EXPECT_EQ(owner.window.next_gathers(any), units({})) << "unit 1 comes first";
  owner.window.set_updated(UnitIndex(1));
  EXPECT_EQ(owner.window.next_gathers(any), units({1, 0}));
  owner.window.begin_pass(units({1, 0, 2}));
  EXPECT_FALSE(owner.window.is_updating());
}

TEST(GatherWindow, KnowsTheAcquisitionThatAGatherIsFor) {
  Owner owner({.ahead = 0, .live = 100});
  owner.window.begin_pass(units({0, 1, 0, 2}));
  EXPECT_EQ(owner.window.next_acquisition(UnitIndex(0)), 0u);
  owner.window.advance();
  EXPECT_EQ(owner.window.next_acquisition(UnitIndex(0)), 0u) << "it is at hand";
  owner.window.advance();
  EXPECT_EQ(owner.window.next_acquisition(UnitIndex(0)), 2u);
}

/// The unit at hand is leased: it is not ahead, but live.
TEST(GatherWindow, TellsHowEarlyAGatherMayStart) {
  auto const order = units({0, 1, 2, 3});
  using Places = std::vector<std::size_t>;
  EXPECT_EQ(Owner({.ahead = 20, .live = 100}).window.earliest_gathers(order), (Places{0, 0, 0, 1}));
  EXPECT_EQ(Owner({.ahead = 10, .live = 100}).window.earliest_gathers(order), (Places{0, 0, 1, 2}));
  EXPECT_EQ(Owner({.ahead = 100, .live = 30}).window.earliest_gathers(order), (Places{0, 0, 0, 1}));
}

}  // namespace
}  // namespace tessera::zero::detail
