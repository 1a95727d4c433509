#include "tessera/plan/auto_tune.hpp"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <chrono>

#include "mpi_test.hpp"
#include "plan_fixture.hpp"
#include "scratch_files.hpp"
#include "tessera/comm/compose/host_collectives.hpp"
#include "tessera/core/error.hpp"
#include "tessera/memory/limits.hpp"

namespace tessera::plan {
namespace {

using ::testing::HasSubstr;

class AutoTune : public ::testing::Test {
 protected:
  /// All ranks have the directory of rank 0.
  AutoTune() {
    directory_ =
        comm::broadcast_from_root(*comm_, [&] { return (files_.directory() / "run").string(); });
  }
  config::TrainingArguments arguments(std::vector<std::string> const& more) const {
    auto words = test::small_gpt2(
        {"--use_cpu", "--auto_tune", "--per_device_train_batch_size", "2", "--output_dir",
         directory_.string(), "--deepspeed",
         R"({"autotuning": {"enabled": true, "start_profile_step": 1, "end_profile_step": 2,
             "tuner_num_trials": 2}})"});
    words.insert(words.end(), more.begin(), more.end());
    return config::parse_options(words);
  }
  /// All ranks have read the files of rank 0 before it removes them.
  void TearDown() override { comm_->barrier(); }
  /// Rank 0 writes the files that all ranks read afterwards.
  Tuned tune(config::TrainingArguments const& a) {
    auto tuned = auto_tune({a, *comm_, {1, comm_->size()}});
    comm_->barrier();
    return tuned;
  }

  ScratchFiles files_;
  std::unique_ptr<comm::Collectives> comm_ =
      comm::make_mpi(tessera::test::session(), std::chrono::seconds(60));
  std::filesystem::path directory_;
};

TEST_F(AutoTune, WritesTrialsAndARunFile) {
  auto const tuned = tune(arguments({"--learning_rate", "0.001"}));
  EXPECT_TRUE(tuned.searched);
  EXPECT_FALSE(tuned.arguments.auto_tune);
  auto const trials = ConfigTree::read(directory_ / "tuning.json");
  EXPECT_GE(trials.at("trials").size(), 2u);
  auto const& best = trials.at("best");
  EXPECT_EQ(best.at("per_device_train_batch_size").as_int() *
                best.at("gradient_accumulation_steps").as_int(),
            2)
      << "the batch of a step stays";
  auto const run = ConfigTree::read(directory_ / "tuned.json");
  EXPECT_FALSE(run.contains("auto_tune"));
  EXPECT_FALSE(run.at("deepspeed").contains("autotuning"));
  EXPECT_EQ(run.at("learning_rate").as_double(), 0.001);
  auto const again = config::parse_options({(directory_ / "tuned.json").string()});
  auto const resolved = [&](config::TrainingArguments const& a) {
    return config::describe(config::resolve(a, comm_->size(), 256))
        .at("stage")
        .at("value")
        .as_int();
  };
  EXPECT_EQ(resolved(again), best.at("stage").as_int());
  EXPECT_EQ(resolved(tuned.arguments), best.at("stage").as_int());
}

/// With autotuning.overwrite false, as where the run resumes (e2e.auto_tune_searches_then_trains).
TEST_F(AutoTune, TheResultOfTheSameRunIsUsedAgain) {
  std::string const keep = R"({"autotuning": {"enabled": true, "start_profile_step": 1,
      "end_profile_step": 2, "tuner_num_trials": 2, "overwrite": false}})";
  auto const a = arguments({"--deepspeed", keep});
  (void)tune(a);
  auto const first = ConfigTree::read(directory_ / "tuning.json");
  EXPECT_TRUE(tune(a).searched);
  EXPECT_EQ(ConfigTree::read(directory_ / "tuning.json").dump(), first.dump()) << "no new search";
  comm_->barrier();
  (void)tune(arguments({"--deepspeed", keep, "--block_size", "64"}));
  EXPECT_NE(ConfigTree::read(directory_ / "tuning.json").dump(), first.dump()) << "another run";
}

TEST_F(AutoTune, NothingThatFitsIsAnErrorWithTheSmallestChanges) {
  memory::limit_memory(
      memory::MemorySpace::host,
      memory::MemoryTracker::of_process().current_total() + (std::size_t{1} << 20));
  try {
    (void)tune(arguments({}));
    ADD_FAILURE() << "accepted";
  } catch (ConfigError const& e) {
    EXPECT_THAT(e.what(), HasSubstr("no configuration fits"));
    EXPECT_THAT(e.what(), HasSubstr("of host memory per rank"));
  }
  memory::limit_memory(memory::MemorySpace::host, 0);
}

}  // namespace
}  // namespace tessera::plan
