#include "tessera/train/report/run_directory.hpp"

#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <stdlib.h>

#include <fstream>

#include "small_run.hpp"
#include "tessera/checkpoint/save/save.hpp"
#include "tessera/core/error.hpp"

namespace tessera::train {
namespace {

namespace fs = std::filesystem;
using ::testing::HasSubstr;

struct RunDirectory : ::testing::Test {
  StartingPoint start(std::string const& resume = "", bool overwrite = false) {
    config::TrainingArguments arguments;
    arguments.output_dir = output;
    arguments.do_train = true;
    arguments.resume_from_checkpoint = resume;
    arguments.overwrite_output_dir = overwrite;
    std::unique_ptr<RunLock> lock;
    auto const point = prepare_run_directory(arguments, *run.comm, lock);
    EXPECT_NE(lock, nullptr);
    return point;
  }
  /// Errors of rank 0 reach every rank as the base type with the same exit code.
  ExitCode error_of(std::string const& resume = "") {
    try {
      start(resume);
    } catch (Error const& e) {
      return e.code();
    }
    return ExitCode::done;
  }
  void save(std::int64_t step) {
    checkpoint::save(run.save_request(output, step), run.engine->state(), *run.comm);
  }
  fs::path checkpoint(std::string const& name) const { return output / "checkpoints" / name; }

  test::SmallRun run;
  fs::path output = run.files.directory() / "out";
};

TEST_F(RunDirectory, IsCreatedAndStartsFresh) {
  EXPECT_TRUE(start().checkpoint.empty());
  EXPECT_TRUE(fs::is_directory(output));
  EXPECT_TRUE(fs::is_empty(output)) << "the test file and the lock are removed";
}

TEST_F(RunDirectory, IsNotMadeToGenerateTextOnly) {
  auto const makes = [&](config::TrainingArguments arguments) {
    arguments.output_dir = output;
    std::unique_ptr<RunLock> lock;
    prepare_run_directory(arguments, *run.comm, lock);
    EXPECT_EQ(lock != nullptr, fs::exists(output));
    return fs::exists(output);
  };
  config::TrainingArguments generates;
  generates.do_generate = true;
  EXPECT_FALSE(makes(generates));
  auto evaluates = generates;
  evaluates.do_eval = true;
  EXPECT_TRUE(makes(evaluates));
  EXPECT_TRUE(makes(generates)) << "it is there";
  fs::remove_all(output);
  EXPECT_TRUE(makes(config::parse_arguments(
      {"--model_name_or_path", "gpt2", "--do_generate", "--prompt", "a", "--output_dir", "given"})))
      << "the user named it";
}

TEST_F(RunDirectory, OtherFilesAreRefusedUnlessOverwritten) {
  fs::create_directories(output);
  std::ofstream(output / "status.json") << "{}";
  std::ofstream(output / "metrics.jsonl");
  fs::create_directories(output / "flight_record");
  EXPECT_TRUE(start().checkpoint.empty()) << "left by a run without a checkpoint";
  std::ofstream(output / "thesis.txt");
  EXPECT_EQ(error_of(), ExitCode::usage);
  EXPECT_TRUE(start("", true).checkpoint.empty());
  EXPECT_TRUE(fs::exists(output / "thesis.txt"));
}

TEST_F(RunDirectory, ResumesFromTheNewestCompleteCheckpoint) {
  EXPECT_EQ(error_of("true"), ExitCode::io) << "there must be one";
  save(1);
  save(2);
  for (char const* given : {"", "auto", "true", "latest"}) {
    auto const point = start(given);
    EXPECT_EQ(point.checkpoint, checkpoint("step_00000002")) << given;
    EXPECT_TRUE(point.may_fall_back);
    EXPECT_THAT(point.note, HasSubstr("resuming from"));
  }
  EXPECT_EQ(start("", true).checkpoint, checkpoint("step_00000002")) << "it has not finished";
  EXPECT_TRUE(start("never", true).checkpoint.empty());
  EXPECT_EQ(error_of("never"), ExitCode::usage) << "the checkpoints are in the way";
  fs::remove(checkpoint("step_00000002") / "manifest.json");
  EXPECT_EQ(start().checkpoint, checkpoint("step_00000001"));
}

TEST_F(RunDirectory, OverwritesOnlyACompletedRun) {
  save(1);
  std::ofstream(output / "status.json") << R"({"completed": true, "trained_in_job": "7"})";
  EXPECT_TRUE(start("", true).checkpoint.empty());
  EXPECT_EQ(start("auto", true).checkpoint, checkpoint("step_00000001"));
  ::setenv("SLURM_RESTART_COUNT", "1", 1);
  EXPECT_TRUE(start("", true).checkpoint.empty()) << "of another job";
  ::setenv("SLURM_JOB_ID", "7", 1);
  for (char const* flag : {"", "never"})
    EXPECT_EQ(start(flag, true).checkpoint, checkpoint("step_00000001")) << "this job's own";
  ::unsetenv("SLURM_RESTART_COUNT");
  EXPECT_TRUE(start("", true).checkpoint.empty()) << "the same id on another machine";
  ::unsetenv("SLURM_JOB_ID");
}

TEST_F(RunDirectory, DamageIsNeverARequestToRemoveIt) {
  save(1);
  save(2);
  for (char const* step : {"step_00000001", "step_00000002"})
    fs::remove(checkpoint(step) / "shard_00000.h5");
  for (char const* flag : {"", "auto", "true"})
    EXPECT_EQ(error_of(flag), ExitCode::bad_data) << flag;
  try {
    start("", true);
    FAIL() << "no checkpoint can be read";
  } catch (Error const& e) {
    EXPECT_EQ(e.code(), ExitCode::bad_data);
    EXPECT_THAT(e.what(), HasSubstr("both checkpoints"));
    EXPECT_THAT(e.what(), HasSubstr("step_00000002/shard_00000.h5"));
    EXPECT_THAT(e.what(), ::testing::Not(HasSubstr("overwrite")));
  }
  EXPECT_TRUE(start("never", true).checkpoint.empty());
  fs::remove_all(output / "checkpoints");
  std::ofstream(output / "checkpoints") << "a file";
  EXPECT_EQ(error_of(), ExitCode::io);
  EXPECT_EQ(error_of("true"), ExitCode::io);
}

TEST_F(RunDirectory, ANamedCheckpointIsUsedOrRefused) {
  save(1);
  save(2);
  for (std::string const& given :
       {std::string("1"), std::string("step_00000001"), checkpoint("step_00000001").string()}) {
    auto const point = start(given);
    EXPECT_EQ(point.checkpoint, checkpoint("step_00000001")) << given;
    EXPECT_FALSE(point.may_fall_back);
  }
  EXPECT_EQ(error_of("7"), ExitCode::io);
  fs::remove(checkpoint("step_00000001") / "shard_00000.h5");
  EXPECT_EQ(error_of("1"), ExitCode::bad_data);
}

TEST_F(RunDirectory, FallsBackToAnOlderCheckpoint) {
  save(1);
  save(2);
  config::TrainingArguments arguments;
  arguments.output_dir = output;
  EXPECT_EQ(fall_back(arguments, {2}, *run.comm).checkpoint, checkpoint("step_00000001"));
  EXPECT_TRUE(fall_back(arguments, {2, 1}, *run.comm).checkpoint.empty());
}

TEST_F(RunDirectory, RemovesOnlyThePreviousRun) {
  save(1);
  std::ofstream(output / "metrics.jsonl");
  std::ofstream(output / "thesis.txt");
  remove_previous_run(output);
  EXPECT_FALSE(fs::exists(output / "checkpoints"));
  EXPECT_FALSE(fs::exists(output / "metrics.jsonl"));
  EXPECT_FALSE(fs::exists(output / ".trash.checkpoints"));
  EXPECT_TRUE(fs::exists(output / "thesis.txt"));
}

TEST(RunId, IsATimeAndRandomDigits) {
  auto const id = new_run_id();
  EXPECT_THAT(id, ::testing::MatchesRegex("[0-9]+-[0-9]+-[0-9a-f]+"));
  EXPECT_EQ(id.size(), 8u + 1 + 6 + 1 + 12);
  EXPECT_NE(new_run_id(), id);
}

}  // namespace
}  // namespace tessera::train
