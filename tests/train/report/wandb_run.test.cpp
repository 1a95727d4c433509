#include <gtest/gtest.h>

#include <cstdlib>
#include <fstream>
#include <iterator>

#include "scratch_files.hpp"
#include "tessera/train/report/tracker.hpp"

namespace tessera::train {
namespace {

std::filesystem::path log_in(std::filesystem::path const& run) {
  for (auto const& entry : std::filesystem::recursive_directory_iterator(run))
    if (entry.path().extension() == ".wandb") return entry.path();
  return {};
}

std::string content(std::filesystem::path const& file) {
  std::ifstream in(file, std::ios::binary);
  return {std::istreambuf_iterator<char>(in), {}};
}

std::size_t count(std::string const& text, std::string const& part) {
  std::size_t found = 0;
  for (auto at = text.find(part); at != std::string::npos; at = text.find(part, at + 1)) ++found;
  return found;
}

/// e2e.trackers_read_the_run reads a complete run with W&B's messages.
TEST(WandbRun, ContinuesAfterAKillInTheMiddleOfARecord) {
  ScratchFiles const files;
  {
    auto const run = wandb_run({files.directory(), "name"}, 1);
    for (int step = 1; step <= 2000; ++step) run->write(step, {{"train/loss", 0.5 * step}});
  }
  auto const file = log_in(files.directory());
  auto const bytes = std::filesystem::file_size(file);
  ASSERT_GT(bytes, 4u * 32768u);
  std::filesystem::resize_file(file, bytes - 5);
  wandb_run({files.directory(), "name"}, 1501)->write(1501, {{"train/loss", -1.0}});
  EXPECT_EQ(log_in(files.directory()), file);
  std::string const log = content(file);
  EXPECT_LT(log.size(), bytes);
  EXPECT_EQ(count(log, ":W&B"), 1u);
  EXPECT_NE(log.find("-1.0"), std::string::npos);
  EXPECT_EQ(log.find("750.5"), std::string::npos) << "the loss of step 1501 before the resume";
  EXPECT_NE(log.find("749.5"), std::string::npos) << "the loss of step 1499";
}

TEST(WandbRun, HasTheIdThatTheEnvironmentGives) {
  ScratchFiles const files;
  for (char const* id : {"my-run", "my-run-2"}) {
    ::setenv("WANDB_RUN_ID", id, 1);
    wandb_run({files.directory(), "name"}, 1)->write(1, {{"train/loss", 1.0}});
  }
  ::setenv("WANDB_RUN_ID", "my-run", 1);
  wandb_run({files.directory(), "name"}, 2)->write(2, {{"train/loss", 7.25}});
  ::unsetenv("WANDB_RUN_ID");
  int runs = 0;
  for (auto const& entry : std::filesystem::directory_iterator(files / "wandb")) {
    std::string const name = entry.path().filename().string();
    bool const resumed = name.ends_with("-my-run");
    auto const file = entry.path() / (resumed ? "run-my-run.wandb" : "run-my-run-2.wandb");
    EXPECT_EQ(content(file).find("7.25") != std::string::npos, resumed) << name;
    ++runs;
  }
  EXPECT_EQ(runs, 2) << "a resume continues the run of its id";
}

TEST(WandbRun, IsANewOneAfterAFreshStart) {
  ScratchFiles const files;
  wandb_run({files.directory(), "name"}, 1)->end();
  wandb_run({files.directory(), "name"}, 1)->end();
  auto const runs = std::filesystem::directory_iterator(files / "wandb");
  EXPECT_EQ(std::distance(begin(runs), end(runs)), 2);
}

}  // namespace
}  // namespace tessera::train
