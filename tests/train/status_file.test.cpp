#include "tessera/train/status_file.hpp"

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

TEST(StatusFile, ADirectoryThatDoesNotExistIsNotCreated) {
  ScratchFiles const files;
  StatusFile status(files.directory() / "none", ConfigTree::object());
  status.finish({State::failed, 64, "refused", -1, ""});
  EXPECT_FALSE(std::filesystem::exists(files.directory() / "none"));
}

}  // namespace
}  // namespace tessera::train
