#include "tessera/train/report/status_file.hpp"

#include <gtest/gtest.h>

#include "scratch_files.hpp"

namespace tessera::train {
namespace {

using State = StatusFile::State;

ConfigTree read(ScratchFiles const& files) {
  return ConfigTree::read(files.directory() / "status.json");
}

TEST(StatusFile, TellsStateStepAndIdentity) {
  ScratchFiles const files;
  StatusFile status(files.directory(), ConfigTree().set("world_size", 4));
  status.update(State::running, 3, 10);
  auto const running = read(files);
  EXPECT_EQ(running.at("state").as_string(), "running");
  EXPECT_EQ(running.at("step").as_int(), 3);
  EXPECT_EQ(running.at("total_steps").as_int(), 10);
  EXPECT_EQ(running.at("world_size").as_int(), 4);
  EXPECT_TRUE(running.contains("started") && running.contains("updated"));
  status.update(State::running, 4, 10);
  EXPECT_EQ(read(files).at("step").as_int(), 3) << "at most one write per second";
  status.update(State::saving, 4, 10);
  EXPECT_EQ(read(files).at("state").as_string(), "saving") << "a change is written immediately";
  status.checkpoint_saved("step_00000004");
  EXPECT_EQ(read(files).at("last_checkpoint").as_string(), "step_00000004");
}

TEST(StatusFile, EndsWithCodeReasonAndSuspect) {
  ScratchFiles const files;
  StatusFile status(files.directory(), ConfigTree::object());
  EXPECT_FALSE(run_has_failed(files.directory())) << "nothing is written yet";
  status.finish({State::stopped_early, 75, "stopped", -1, ""});
  EXPECT_FALSE(run_has_failed(files.directory()));
  EXPECT_FALSE(read(files).contains("suspect_rank"));
  status.finish({State::failed, 69, "a rank is lost", 3, "node7"});
  EXPECT_TRUE(run_has_failed(files.directory()));
  auto const end = read(files);
  EXPECT_EQ(end.at("exit_code").as_int(), 69);
  EXPECT_EQ(end.at("reason").as_string(), "a rank is lost");
  EXPECT_EQ(end.at("suspect_rank").as_int(), 3);
  EXPECT_EQ(end.at("suspect_host").as_string(), "node7");
}

TEST(StatusFile, OtherRanksWriteOnlyAfterATakeover) {
  ScratchFiles const files;
  StatusFile status({}, ConfigTree::object());
  status.update(State::running, 1, 2);
  EXPECT_TRUE(std::filesystem::is_empty(files.directory()));
  status.take_over(files.directory());
  status.finish({State::failed, 70, "only this rank knows", -1, ""});
  EXPECT_EQ(read(files).at("reason").as_string(), "only this rank knows");
}

TEST(StatusFile, CountsAttemptsThatWereStoppedAfterAtMostOneStep) {
  ScratchFiles const files;
  for (int const attempt : {1, 2, 3}) {
    StatusFile status(files.directory(), ConfigTree::object());
    status.training_begins("4711", attempt == 1 ? "" : "step_00000001");
    EXPECT_EQ(status.attempt_stops(1), attempt);
    status.finish({State::stopped_early, 75, "stopped", -1, ""});
  }
  StatusFile longer(files.directory(), ConfigTree::object());
  EXPECT_EQ(longer.attempt_stops(2), 0);
  EXPECT_EQ(longer.attempt_stops(1), 1);
}

TEST(StatusFile, KeepsWhatIsKnownOfTheTrainingUntilAnAttemptTrains) {
  ScratchFiles const files;
  {
    StatusFile status(files.directory(), ConfigTree::object());
    status.training_begins("4711", "");
    status.checkpoint_saved("step_00000009");
    EXPECT_FALSE(earlier_attempts(files.directory()).completed);
    status.training_completed();
    status.finish({State::done, 0, "finished", -1, ""});
  }
  {
    StatusFile refused(files.directory(), ConfigTree().set("attempt", 2));
    refused.finish({State::failed, 64, "wrong argument", -1, ""});
  }
  auto const earlier = earlier_attempts(files.directory());
  EXPECT_TRUE(earlier.completed);
  EXPECT_EQ(earlier.trained_in_job, "4711");
  EXPECT_EQ(read(files).at("attempt").as_int(), 2);
  EXPECT_EQ(read(files).at("last_checkpoint").as_string(), "step_00000009");
  StatusFile next(files.directory(), ConfigTree::object());
  next.training_begins("", "step_00000003");
  EXPECT_FALSE(earlier_attempts(files.directory()).completed);
  EXPECT_EQ(earlier_attempts(files.directory()).trained_in_job, "");
  EXPECT_EQ(read(files).at("last_checkpoint").as_string(), "step_00000003");
  next.training_begins("", "");
  EXPECT_FALSE(read(files).contains("last_checkpoint"));
  files.write("status.json", R"({"completed": "yes", "trained_in_job": 5, "state": 3})");
  EXPECT_FALSE(earlier_attempts(files.directory()).completed) << "a damaged file says nothing";
  EXPECT_FALSE(run_has_failed(files.directory()));
}

TEST(StatusFile, ASignalEndsItForGood) {
  ScratchFiles const files;
  StatusFile status(files.directory(), ConfigTree::object());
  status.update(State::running, 3, 10);
  status.checkpoint_saved("step_00000002");
  status.finish_by_signal(2, "SIGINT");
  status.update(State::saving, 4, 10);
  status.finish({State::failed, 69, "a rank is lost", -1, ""});
  auto const end = read(files);
  EXPECT_EQ(end.at("state").as_string(), "failed");
  EXPECT_EQ(end.at("exit_code").as_int(), 130);
  EXPECT_EQ(end.at("step").as_int(), 3);
  EXPECT_EQ(end.at("reason").as_string(),
            "ended by a second SIGINT without a save; run the same command again to resume from "
            "step_00000002");
}

TEST(StatusFile, ADirectoryThatDoesNotExistIsNotCreated) {
  ScratchFiles const files;
  StatusFile status(files.directory() / "none", ConfigTree::object());
  status.finish({State::failed, 64, "refused", -1, ""});
  EXPECT_FALSE(std::filesystem::exists(files.directory() / "none"));
}

}  // namespace
}  // namespace tessera::train
