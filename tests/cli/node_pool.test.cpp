#include "recovery/node_pool.hpp"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <chrono>

#include "tessera/core/error.hpp"

namespace tessera::cli {
namespace {

using testing::ElementsAre;

std::vector<HostSlots> nodes(std::initializer_list<char const*> names) {
  std::vector<HostSlots> out;
  for (char const* name : names) out.push_back({name, {0, 1}});
  return out;
}

std::vector<std::string> names(std::vector<HostSlots> const& chosen) {
  std::vector<std::string> out;
  for (auto const& node : chosen) out.push_back(node.host);
  return out;
}

NodePool::Time const now{std::chrono::hours(100)};

TEST(NodePool, TakesASpareInPlaceOfANodeThatFailed) {
  NodePool pool(nodes({"a", "b", "c"}), 1);
  EXPECT_THAT(names(pool.choose(now)), ElementsAre("a", "b"));
  pool.rank_failed("a", now);
  EXPECT_THAT(names(pool.choose(now)), ElementsAre("b", "c"));
  pool.rank_failed("b", now);
  pool.rank_failed("b", now);
  EXPECT_THAT(names(pool.choose(now)), ElementsAre("a", "c"));
  pool.lost("c");
  EXPECT_THAT(names(pool.choose(now)), ElementsAre("a", "b"));
}

TEST(NodePool, WithoutSparesANodeIsLeftOutForAnHourAfterThreeFailuresInARow) {
  NodePool pool(nodes({"a", "b"}), 0);
  for (char const* failed : {"b", "b", "a", "b", "b"}) {
    pool.rank_failed(failed, now);
    EXPECT_THAT(names(pool.choose(now)), ElementsAre("a", "b"));
  }
  auto const later = now + std::chrono::minutes(61);
  pool.rank_failed("b", later);
  EXPECT_THAT(names(pool.choose(later)), ElementsAre("a", "b"));
  pool.rank_failed("b", later);
  pool.rank_failed("b", later);
  EXPECT_THAT(names(pool.choose(later)), ElementsAre("a"));
  pool.rank_failed("a", later);
  EXPECT_THAT(names(pool.choose(later)), ElementsAre("a"));
  EXPECT_THAT(names(pool.choose(later + std::chrono::minutes(61))), ElementsAre("a", "b"));
}

TEST(NodePool, ALostNodeReturnsOnceItAnswersAndTheOnlyNodeStays) {
  NodePool pool(nodes({"a", "b"}), 0);
  pool.lost("a");
  EXPECT_THAT(names(pool.choose(now)), ElementsAre("b"));
  EXPECT_THAT(pool.lost_hosts(), ElementsAre("a"));
  pool.found("a");
  EXPECT_THAT(names(pool.choose(now)), ElementsAre("a", "b"));
  NodePool alone(nodes({"a"}), 0);
  for (int i = 0; i < 5; ++i) alone.rank_failed("a", now);
  EXPECT_THAT(names(alone.choose(now)), ElementsAre("a"));
  alone.rank_failed("unknown", now);
}

TEST(NodePool, AnExcludedNodeIsNotUsedAgain) {
  NodePool pool(nodes({"a", "b"}), 0);
  pool.exclude("a");
  pool.exclude("unknown");
  EXPECT_THAT(names(pool.choose(now)), ElementsAre("b"));
  EXPECT_THAT(names(pool.choose(now + std::chrono::hours(100))), ElementsAre("b"));
  pool.exclude("b");
  EXPECT_THAT(names(pool.choose(now)), ElementsAre());
}

TEST(NodePool, RefusesWhatCannotBe) {
  EXPECT_THROW(NodePool(nodes({"a"}), 1), UsageError);
  EXPECT_THROW(NodePool({{"a", {0}}, {"b", {0, 1}}}, 0), UsageError);
}

}  // namespace
}  // namespace tessera::cli
