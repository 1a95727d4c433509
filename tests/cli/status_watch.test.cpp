#include "status_watch.hpp"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <fstream>

#include "scratch_files.hpp"
#include "tessera/core/error.hpp"

namespace tessera::cli {
namespace {

ConfigTree in_state(std::string const& state) {
  return ConfigTree::object().set("state", state).set("updated", "2026-01-31T12:00:00Z");
}

ConfigTree at_step_60() {
  ConfigTree tree = in_state("running");
  tree.set("step", 60)
      .set("total_steps", 240)
      .set("world_size", 4)
      .set("last_checkpoint", "step_50");
  tree.set("memory", ConfigTree::object().set("host", ConfigTree::object().set("peak", 1 << 30)));
  return tree;
}

/// 60 steps of half a second whose loss falls by 0.125 a step from 16.
std::vector<ConfigTree> sixty_steps() {
  std::vector<ConfigTree> out;
  for (int step = 1; step <= 60; ++step) {
    ConfigTree record;
    record.set("step", step).set("loss", 16.0 - 0.125 * step).set("seconds", 0.5);
    record.set("tokens_per_second", 1234.0).set("learning_rate", 1e-3).set("grad_norm", 0.5);
    out.push_back(std::move(record));
    if (step == 40) out.push_back(ConfigTree::object().set("step", 40).set("eval_loss", 11.5));
  }
  return out;
}

TEST(WatchOfARun, ShowsProgressAndTheTimeLeft) {
  EXPECT_EQ(watch_line(at_step_60(), sixty_steps()),
            "running, step 60/240, loss 8.5000, 1234 tokens/s, left 1m 30s");
  std::string const view = watch_view(at_step_60(), sixty_steps(), 80);
  EXPECT_THAT(view, ::testing::HasSubstr("[======                  ]  25 %  60/240  left 1m 30s"));
  EXPECT_THAT(view, ::testing::HasSubstr("loss        8.5000  \u2588"));
  EXPECT_THAT(view, ::testing::HasSubstr("\u2581\n"));
  EXPECT_THAT(view, ::testing::HasSubstr("evaluation  loss 11.5000 at step 40\n"));
  EXPECT_THAT(view,
              ::testing::HasSubstr("memory      host 1.0 GiB at most\ncheckpoint  step_50\n"));
}

TEST(WatchOfARun, BeforeTheFirstStepHasNoTime) {
  ConfigTree starting = in_state("starting");
  EXPECT_EQ(watch_line(starting, {}), "starting, step 0/0, left ?");
  EXPECT_THAT(watch_view(starting, {}, 20), ::testing::HasSubstr("[          ]   0 %  0/0"));
}

TEST(WatchOfARun, ReadsTheNewestRecordsAndNotTheOneBeingWritten) {
  ScratchFiles const run;
  EXPECT_TRUE(newest_records(run.path()).empty());
  std::ofstream out(run.path() / "metrics.jsonl");
  for (int step = 1; step <= 5000; ++step) out << "{\"step\": " << step << ", \"loss\": 1.5}\n";
  out << "{\"step\": 50" << std::flush;
  auto const records = newest_records(run.path());
  ASSERT_GT(records.size(), 1000u);
  EXPECT_LT(records.size(), 5000u);
  EXPECT_EQ(records.back().get_int("step", 0), 5000);
}

TEST(WatchOfARun, EndsWhereNoProcessIsLeft) {
  ScratchFiles const run;
  std::ofstream(run.path() / "status.json") << at_step_60().dump();
  try {
    watch(run.path(), std::chrono::seconds(0));
    FAIL() << "returned";
  } catch (IoError const& error) {
    EXPECT_EQ(
        std::string(error.what()),
        "the run in " + run.path().string() +
            " has recorded no end, and no process of it is alive; see `tessera doctor --why " +
            run.path().string() + "`");
  }
}

}  // namespace
}  // namespace tessera::cli
