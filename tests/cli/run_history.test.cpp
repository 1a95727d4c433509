#include "recovery/run_history.hpp"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <chrono>

namespace tessera::cli {
namespace {

using testing::HasSubstr;
using namespace std::chrono_literals;

TEST(RunHistory, SaysWhereTheSecondsWent) {
  RunHistory::Time const zero{};
  auto const at = [&](double seconds) {
    return zero + std::chrono::duration_cast<RunHistory::Time::duration>(
                      std::chrono::duration<double>(seconds));
  };
  RunHistory history(ConfigTree::object(), at(0));
  history.attempt_begins(4, at(0));
  history.training_begins(0, 0.0, at(2));
  history.step_completed(10, at(12));
  Failure failure;
  failure.kind = failure.reason = "killed";
  failure.host = "n2";
  history.attempt_failed(failure, at(12), at(13));
  history.attempt_begins(2, at(13));
  history.training_begins(8, 0.5, at(15));
  EXPECT_FALSE(history.caught_up());
  history.step_completed(9, at(16));
  history.step_completed(10, at(17));
  EXPECT_TRUE(history.caught_up());
  EXPECT_EQ(history.steps_of_attempt(), 2);
  history.step_completed(20, at(27));
  history.run_ended(0, "finished", at(27));
  auto const tree = history.tree(at(27));
  auto const& lost = tree.at("lost_seconds");
  EXPECT_DOUBLE_EQ(lost.get_double("start", 0), 2.0 + 1.5);
  EXPECT_DOUBLE_EQ(lost.get_double("restore", 0), 0.5);
  EXPECT_DOUBLE_EQ(lost.get_double("recomputation", 0), 2.0);
  EXPECT_DOUBLE_EQ(lost.get_double("stall", 0), 1.0);
  EXPECT_DOUBLE_EQ(tree.get_double("goodput", 0), 20.0 / 27.0);
  EXPECT_EQ(tree.get_int("attempts", 0), 2);
  EXPECT_EQ(failures_text(tree), "1: 1 killed");
  EXPECT_THAT(goodput_text(tree), HasSubstr("74.1 % of 27s"));
  auto const lines = history_lines(tree, 5);
  ASSERT_EQ(lines.size(), 1U);
  EXPECT_THAT(lines[0], HasSubstr("after step 10 on 4 ranks, node n2: killed; lost 5.0 s"));
  RunHistory const next(tree, at(100));  // a supervisor that continues the run
  EXPECT_DOUBLE_EQ(next.tree(at(101)).get_double("elapsed_seconds", 0), 28.0);
  RunHistory fresh(tree, at(100));  // in the same directory
  fresh.attempt_begins(4, at(100));
  fresh.training_begins(0, 0.0, at(101));
  EXPECT_EQ(failures_text(fresh.tree(at(102))), "none");
  EXPECT_DOUBLE_EQ(fresh.tree(at(102)).get_double("elapsed_seconds", 0), 2.0);
}

TEST(RunHistory, RemembersNodesThatComputedWrongResults) {
  RunHistory::Time const zero{};
  RunHistory history(ConfigTree::object(), zero);
  Failure failure;
  failure.host = "n1";
  history.attempt_failed(failure, zero, zero);
  failure.host = "n2";
  failure.excludes_node = true;
  history.attempt_failed(failure, zero, zero);
  EXPECT_THAT(excluded_nodes(history.tree(zero)), testing::ElementsAre("n2"));
  EXPECT_TRUE(excluded_nodes(ConfigTree::object()).empty());
}

TEST(RunHistory, AFailureWhileStepsAreRepeatedCountsThemAndTheStall) {
  RunHistory::Time const zero{};
  RunHistory history(ConfigTree::object(), zero);
  history.attempt_begins(1, zero);
  history.training_begins(0, 0.0, zero);
  history.step_completed(10, zero);
  history.attempt_failed({}, zero, zero);
  history.attempt_begins(1, zero);
  history.training_begins(5, 0.0, zero + 1s);
  history.step_completed(7, zero + 3s);
  history.attempt_failed({}, zero + 3s, zero + 4s);
  history.attempt_begins(1, zero + 4s);
  history.attempt_failed({}, zero + 4s, zero + 6s);  // during the start
  auto const lost = history.tree(zero + 6s).at("lost_seconds");
  EXPECT_DOUBLE_EQ(lost.get_double("start", 0), 3.0);
  EXPECT_DOUBLE_EQ(lost.get_double("recomputation", 0), 2.0);
  EXPECT_DOUBLE_EQ(lost.get_double("stall", 0), 1.0);
  history.attempt_begins(1, zero + 6s);
  history.training_begins(5, 0.0, zero + 6s);
  history.step_completed(9, zero + 7s);
  EXPECT_FALSE(history.caught_up()) << "step 10 was completed before";
}

}  // namespace
}  // namespace tessera::cli
