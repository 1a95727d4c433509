#include "recovery/supervisor.hpp"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <filesystem>
#include <fstream>
#include <iterator>
#include <string>

#include "recovery/run_history.hpp"
#include "scratch_files.hpp"
#include "tessera/core/error.hpp"

namespace tessera::cli {
namespace {

/// A launcher that notes its arguments, and then does what a line of shell says: $n counts its
/// calls.
class FakeLauncher {
 public:
  explicit FakeLauncher(std::string const& action) {
    auto const directory = files_.path().string();
    std::filesystem::create_directories(files_.path() / "run/checkpoints");
    files_.write("mpirun", "#!/bin/sh\ncd " + directory +
                               "\necho \"$@\" >>calls\nn=$(wc -l <calls)\n" + action + "\n");
    std::filesystem::permissions(files_.path() / "mpirun", std::filesystem::perms::owner_all);
    request_.launch.mpirun = directory + "/mpirun";
    request_.program = "tessera-train";
    request_.arguments = {"--do_train",
                          "--model_type",
                          "gpt2",
                          "--tokenizer_name",
                          "t",
                          "--train_file",
                          "x",
                          "--output_dir",
                          directory + "/run",
                          "--per_device_train_batch_size",
                          "4"};
    request_.nodes = {{"node0", {0}}, {"node1", {0}}};
    request_.simulated = true;
    request_.max_restarts = 2;
  }
  RunRequest& request() { return request_; }
  int run() const { return supervise(request_); }
  ConfigTree history() const { return ConfigTree::read(files_.path() / "run" / history_file); }
  int calls() const { return static_cast<int>(history().get_int("attempts", 0)); }
  std::string words() const { return text_of("calls"); }
  std::string text_of(char const* name) const {
    std::ifstream file(files_.path() / name);
    return {std::istreambuf_iterator<char>(file), {}};
  }

 private:
  ScratchFiles files_;
  RunRequest request_;
};

/// Shell that replaces status.json as rank 0 does.
std::string status(std::string const& fields) {
  return "echo '{" + fields + "}' >run/new; mv run/new run/status.json; ";
}
std::string const done = status(R"("state": "done", "exit_code": 0, "reason": "finished")");

TEST(Supervise, StartsAgainUntilTheRunIsDone) {
  FakeLauncher launcher("[ $n -lt 2 ] && kill -9 $$\n" + done);
  EXPECT_EQ(launcher.run(), 0);
  EXPECT_EQ(launcher.calls(), 2);
  EXPECT_EQ(launcher.history().at("failures").as_array().size(), 1U);
  EXPECT_EQ(launcher.history().get_int("exit_code", -1), 0);
}

TEST(Supervise, OwnsTheDirectoryForCheckpointsInMemory) {
  FakeLauncher launcher(
      "echo $TESSERA_MEMORY_DIRECTORY >memory\n"
      "[ $n -lt 2 ] && mkdir -p $TESSERA_MEMORY_DIRECTORY/node0 && kill -9 $$\n"
      "[ -d $TESSERA_MEMORY_DIRECTORY/node0 ] || exit 3\n" +
      done);
  auto& arguments = launcher.request().arguments;
  arguments.insert(arguments.end(), {"--memory_save_steps", "auto"});
  EXPECT_EQ(launcher.run(), 0) << "it outlives the ranks";
  std::string directory = launcher.text_of("memory");
  directory.pop_back();
  EXPECT_THAT(directory, testing::StartsWith("/dev/shm/tessera-run-"));
  EXPECT_FALSE(std::filesystem::exists(directory)) << "and not the run";
}

TEST(Supervise, EndsWhenTheSameStepFailsAgainForTheSameReason) {
  FakeLauncher launcher("kill -9 $$");
  EXPECT_EQ(launcher.run(), 137);
  EXPECT_EQ(launcher.calls(), 2);
}

TEST(Supervise, EndsWithTheCodeOfAnErrorThatStays) {
  FakeLauncher launcher(status(R"("state": "failed", "exit_code": 74, "reason": "full")") +
                        "exit 1");
  EXPECT_EQ(launcher.run(), 74);
  EXPECT_EQ(launcher.calls(), 1);
  FakeLauncher stopped(status(R"("state": "stopped_early", "exit_code": 75, "reason": "")") +
                       "exit 143");
  EXPECT_EQ(stopped.run(), 75);
}

TEST(Supervise, ANodeThatFailsThriceIsLeftOutAndTheGlobalBatchStays) {
  std::string const fails = status(R"("state": "running", "step": '$n'00)") + "sleep 0.3; " +
                            status(R"("state": "failed", "exit_code": 69, "reason": "lost", )"
                                   R"("suspect_rank": 1, "suspect_host": "here")");
  FakeLauncher launcher("if [ $n -lt 4 ]; then " + fails + " exit 69; fi\n" + done);
  launcher.request().max_restarts = 4;
  EXPECT_EQ(launcher.run(), 0);
  EXPECT_EQ(launcher.history().get_int("ranks", 0), 1);
  auto const words = launcher.words();
  EXPECT_THAT(words, testing::HasSubstr("-np 2 tessera-train"));
  EXPECT_THAT(words.substr(words.rfind("-np")),
              testing::AllOf(testing::StartsWith("-np 1 tessera-train"),
                             testing::HasSubstr("--gradient_accumulation_steps 2")));
}

TEST(Supervise, ANodeThatComputesWrongResultsIsNotUsedAgainAndASlowOneIfWanted) {
  std::string const wrong =
      status(R"("state": "failed", "exit_code": 69, "reason": "silent corruption at step 7", )"
             R"("suspect_rank": 1, "suspect_host": "here", "corruption": {"action": "exclude"})");
  FakeLauncher launcher("if [ $n -lt 2 ]; then " + wrong + " exit 69; fi\n" + done);
  EXPECT_EQ(launcher.run(), 0);
  auto const failure = launcher.history().at("failures").as_array().at(0);
  EXPECT_EQ(failure.get_string("kind", ""), "silent corruption");
  EXPECT_TRUE(failure.get_bool("node_excluded", false));
  EXPECT_EQ(launcher.history().get_int("ranks", 0), 1);
  EXPECT_EQ(launcher.run(), 0) << "another supervisor in the same directory";
  EXPECT_EQ(launcher.history().get_int("ranks", 0), 1);

  std::string const slow =
      status(R"("state": "failed", "exit_code": 69, "reason": "lost", "suspect_rank": 0, )"
             R"("suspect_host": "here", "stragglers": [{"rank": 1, "node": "", "factor": 1.8}])");
  for (double const factor : {0.0, 1.5, 2.0}) {
    FakeLauncher other("if [ $n -lt 2 ]; then " + slow + " exit 69; fi\n" + done);
    other.request().exclude_stragglers = factor;
    EXPECT_EQ(other.run(), 0);
    EXPECT_EQ(other.history().get_int("ranks", 0), factor == 1.5 ? 1 : 2) << factor;
  }
}

TEST(Supervise, AHangIsEndedAndLaterAttemptsResumeInTheirOwnDirectory) {
  std::string const hangs =
      status(R"("state": "running", "step": 3, "last_checkpoint": "step_00000003")") + "sleep 100";
  FakeLauncher launcher("if [ $n -lt 2 ]; then " + hangs + "; fi\n" + done);
  launcher.request().hang_timeout_seconds = 0.5;
  launcher.request().arguments.insert(launcher.request().arguments.end(),
                                      {"--resume_from_checkpoint", "/elsewhere"});
  EXPECT_EQ(launcher.run(), 0);
  auto const failure = launcher.history().at("failures").as_array().at(0);
  EXPECT_THAT(failure.get_string("kind", ""), testing::StartsWith("hang"));
  EXPECT_THAT(launcher.words(), testing::EndsWith("--resume_from_checkpoint auto\n"));
}

TEST(Supervise, RefusesSparesThatLeaveNoNode) {
  FakeLauncher launcher(done);
  launcher.request().spares = 2;
  EXPECT_THROW(launcher.run(), UsageError);
}

}  // namespace
}  // namespace tessera::cli
