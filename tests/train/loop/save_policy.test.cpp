#include "tessera/train/loop/save_policy.hpp"

#include <gtest/gtest.h>

#include <fstream>
#include <limits>

#include "becomes_true.hpp"
#include "small_run.hpp"
#include "tessera/checkpoint/format/directory.hpp"
#include "tessera/checkpoint/save/save_model.hpp"
#include "tessera/checkpoint/tools/consolidate.hpp"
#include "tessera/core/error.hpp"

namespace tessera::train {
namespace {

namespace fs = std::filesystem;

struct Saves : ::testing::Test {
  SavePolicy policy(config::AsyncSave async, std::int64_t max_failures = 1,
                    std::optional<checkpoint::NodeMemory> memory = {}) {
    return {{.async = async,
             .max_failures = max_failures,
             .total_steps = 9,
             .memory = std::move(memory),
             .memory_steps = {2}},
            {*run.comm, *run.engine, status, log, deadline},
            [this](std::int64_t step, SaveContent content) {
              checkpoint::SaveRequest request{.directory = output() / "checkpoints",
                                              .step = step,
                                              .run_id = "test",
                                              .plan = run.engine->plan(),
                                              .units = run.model->units(),
                                              .skipped_in_a_row = skipped_in_a_row,
                                              .model_config = run.model->config(),
                                              .resolved_config = ConfigTree::object(),
                                              .trainer_state = ConfigTree::object(),
                                              .versions = ConfigTree::object()};
              if (model_only && content == SaveContent::regular)
                request.model_files.emplace().only_model = true;
              return request;
            }};
  }
  fs::path const& output() const { return run.files.directory(); }
  fs::path checkpoint(std::int64_t step) const {
    return output() / "checkpoints" / checkpoint::step_name(step);
  }
  ConfigTree save_status() const { return ConfigTree::read(output() / "status.json").at("save"); }
  /// No directory can be made where a file is.
  void break_disk() { run.files.write("checkpoints", "a file"); }
  void repair_disk() { fs::remove(output() / "checkpoints"); }

  test::SmallRun run;
  StatusFile status{run.files.directory(), ConfigTree::object()};
  RunLog log{run.files.directory(), RunLog::Role::writer};
  Deadline deadline;
  bool model_only = false;
  std::int64_t skipped_in_a_row = 0;
};

TEST_F(Saves, WaitsForADurableCheckpoint) {
  auto saves = policy(config::AsyncSave::off);
  EXPECT_EQ(saves.last_saved_step(), -1);
  saves.save(3, SaveMode::wait, SaveContent::regular);
  EXPECT_EQ(checkpoint::find_problem(checkpoint(3)), "");
  EXPECT_EQ(saves.last_saved_step(), 3);
  EXPECT_TRUE(saves.covers(3));
  EXPECT_FALSE(saves.covers(2));
  EXPECT_GT(saves.blocked().count(), 0.0);
  status.finish({StatusFile::State::done, 0, "", -1, ""});
  EXPECT_EQ(save_status().at("state").as_string(), "done");
  EXPECT_EQ(save_status().at("step").as_int(), 3);
}

TEST_F(Saves, CompletesABackgroundSaveInLaterCalls) {
  auto saves = policy(config::AsyncSave::on);
  saves.save(1, SaveMode::background, SaveContent::regular);
  EXPECT_TRUE(saves.covers(1)) << "it is in flight";
  EXPECT_EQ(saves.last_saved_step(), -1);
  EXPECT_TRUE(becomes_true([&] {
    if (!saves.disk_busy()) saves.advance();
    return saves.last_saved_step() >= 0;
  }));
  EXPECT_EQ(saves.last_saved_step(), 1);
  saves.save(2, SaveMode::background, SaveContent::regular);
  saves.save(3, SaveMode::background, SaveContent::regular);  // waits for that of step 2
  EXPECT_EQ(saves.last_saved_step(), 2);
  saves.finish();
  EXPECT_EQ(saves.last_saved_step(), 3);
  for (std::int64_t const step : {1, 2, 3})
    EXPECT_EQ(checkpoint::find_problem(checkpoint(step)), "");
}

TEST_F(Saves, ASnapshotKeepsTheStateOfItsStep) {
  auto saves = policy(config::AsyncSave::on);
  saves.save(1, SaveMode::wait, SaveContent::regular);
  saves.save(2, SaveMode::background, SaveContent::regular);
  for (auto& view : run.engine->state())
    for (std::size_t u = 0; u < view.unit_shards.size(); ++u) view.unit_shards[u][0] += 1.0f;
  saves.finish();
  auto const checksums = [&](std::int64_t step) {
    return ConfigTree::read(checkpoint(step) / "manifest.json").at("tensors").dump();
  };
  EXPECT_EQ(checksums(1), checksums(2)) << "what changed after the save began is not in it";
}

TEST_F(Saves, SavesToMemoryWhenNoSaveToDiskIsInFlight) {
  checkpoint::NodeMemory const memory{output() / "memory", {0}};
  auto saves = policy(config::AsyncSave::on, 1, memory);
  auto const advance = [&] {
    if (!saves.disk_busy()) saves.advance();
  };
  auto const in_memory = [&] {
    std::int64_t step = -1;
    if (auto const found = checkpoint::find_generation(memory, {}, *run.comm))
      step = found->manifest.step;
    return step;
  };
  saves.save_to_memory(1, 0.1);
  EXPECT_EQ(in_memory(), -1) << "none is due";
  saves.save(2, SaveMode::background, SaveContent::regular);
  saves.save_to_memory(2, 0.1);
  EXPECT_TRUE(becomes_true([&] {
    advance();
    return saves.last_saved_step() == 2;
  }));
  EXPECT_EQ(in_memory(), -1) << "the save to disk was in flight";
  saves.save_to_memory(3, 0.1);
  EXPECT_FALSE(saves.covers(3)) << "a checkpoint in memory ends with its nodes";
  EXPECT_TRUE(becomes_true([&] {
    advance();
    return in_memory() == 3;
  }));
  EXPECT_EQ(saves.last_saved_step(), 2);
  EXPECT_FALSE(fs::exists(checkpoint(3)));
  saves.save_to_memory(5, 0.1);
  saves.save(5, SaveMode::wait, SaveContent::regular);  // waits for the one in memory
  EXPECT_EQ(in_memory(), 5);
  EXPECT_EQ(saves.last_saved_step(), 5);
  status.finish({StatusFile::State::done, 0, "", -1, ""});
  auto const said = ConfigTree::read(output() / "status.json").at("memory_save");
  EXPECT_EQ(said.at("step").as_int(), 5);
  EXPECT_EQ(said.at("interval").as_int(), 2);
}

TEST_F(Saves, ASaveToMemoryThatFailsIsNotTheEnd) {
  checkpoint::NodeMemory const memory{output() / "memory", {0}};
  auto saves = policy(config::AsyncSave::on, 0, memory);
  fs::remove_all(output() / "memory");
  run.files.write("memory", "a file");
  saves.save_to_memory(2, 0.1);
  EXPECT_EQ(saves.last_failure(), "") << "of saves to disk";
  fs::remove(output() / "memory");
  saves.save_to_memory(3, 0.1);
  saves.save_to_memory(4, 0.1);
  saves.finish();
  ASSERT_TRUE(checkpoint::find_generation(memory, {}, *run.comm));
  EXPECT_EQ(checkpoint::find_generation(memory, {}, *run.comm)->manifest.step, 4);
}

TEST_F(Saves, SurvivesFailuresUpToTheLimit) {
  auto saves = policy(config::AsyncSave::off, 2);
  break_disk();
  saves.save(1, SaveMode::wait, SaveContent::regular);
  EXPECT_EQ(saves.last_saved_step(), -1);
  status.finish({StatusFile::State::running, 0, "", -1, ""});
  EXPECT_EQ(save_status().at("failures_in_a_row").as_int(), 1);
  EXPECT_NE(saves.last_failure(), "");
  repair_disk();
  saves.save(2, SaveMode::wait, SaveContent::regular);
  EXPECT_EQ(saves.last_failure(), "");
  EXPECT_EQ(saves.last_saved_step(), 2);
  fs::remove_all(output() / "checkpoints");
  break_disk();
  saves.save(3, SaveMode::wait, SaveContent::regular);
  saves.save(4, SaveMode::wait, SaveContent::regular);
  EXPECT_THROW(saves.save(5, SaveMode::wait, SaveContent::regular), IoError)
      << "the third failure in a row";
}

TEST_F(Saves, AStateThatIsNotFiniteEndsTheRun) {
  for (auto const async : {config::AsyncSave::off, config::AsyncSave::on}) {
    auto saves = policy(async);
    saves.save(1, SaveMode::wait, SaveContent::regular);
    float& value = run.engine->state()[1].unit_shards[0][3];
    value = std::numeric_limits<float>::infinity();
    EXPECT_THROW(
        {
          saves.save(2, SaveMode::background, SaveContent::regular);
          saves.finish();
        },
        ConfigError);
    value = 0.0f;
    status.finish({StatusFile::State::failed, 78, "", -1, ""});
    EXPECT_EQ(save_status().at("state").as_string(), "failed");
    EXPECT_EQ(saves.last_saved_step(), 1);
    EXPECT_FALSE(fs::exists(checkpoint(2)));
    EXPECT_EQ(checkpoint::find_latest(output())->step, 1);
  }
}

TEST_F(Saves, TheModelIsNotExportedFromWeightsThatAreNotFinite) {
  auto const views = run.engine->state();
  views[0].unit_shards[0][3] = std::numeric_limits<float>::quiet_NaN();
  checkpoint::SaveModelRequest request{
      .directory = output() / "a", .plan = run.engine->plan(), .units = run.model->units()};
  request.model_config = run.model->config();
  EXPECT_THROW(checkpoint::save_model(request, views[0], *run.comm), ConfigError);
}

TEST_F(Saves, KnowsTheNewestCheckpointWithProgress) {
  auto saves = policy(config::AsyncSave::off);
  saves.resumed_from(4, 2);
  EXPECT_EQ(saves.last_progress_step(), -1);
  for (std::int64_t const step : {5, 6}) {
    skipped_in_a_row = step - 5;
    saves.save(step, SaveMode::wait, SaveContent::regular);
  }
  EXPECT_EQ(saves.last_saved_step(), 6);
  EXPECT_EQ(saves.last_progress_step(), 5);
  saves.resumed_from(9, 0);
  EXPECT_EQ(saves.last_progress_step(), 9);
}

TEST_F(Saves, AModelOnlyIsNoCheckpointToResumeFrom) {
  model_only = true;
  auto saves = policy(config::AsyncSave::off);
  saves.save(1, SaveMode::wait, SaveContent::regular);
  EXPECT_TRUE(checkpoint::holds_only_model(checkpoint(1)));
  EXPECT_EQ(saves.last_saved_step(), -1);
  saves.save(2, SaveMode::wait, SaveContent::resumable);
  EXPECT_EQ(saves.last_saved_step(), 2);
}

std::string contents(fs::path const& file) {
  std::ifstream in(file, std::ios::binary);
  return {std::istreambuf_iterator<char>(in), {}};
}

TEST_F(Saves, TheModelIsTheSameFromACheckpointAndFromTheEngine) {
  auto saves = policy(config::AsyncSave::off);
  auto const tokenizer = test::tokenizer_directory() / "tokenizer.json";
  checkpoint::SaveModelRequest request{
      .directory = output() / "a", .plan = run.engine->plan(), .units = run.model->units()};
  request.model_config = run.model->config();
  request.extra_files = {tokenizer};
  checkpoint::save_model(request, run.engine->state().at(0), *run.comm);
  EXPECT_FALSE(fs::exists(output() / "checkpoints")) << "that would be resumed from";
  saves.save(4, SaveMode::wait, SaveContent::regular);
  checkpoint::consolidate({.checkpoint = checkpoint(4), .output = output() / "b"});
  auto const model = contents(output() / "a/model.safetensors");
  EXPECT_GT(model.size(), 4u * 16 * 4096);
  EXPECT_TRUE(model == contents(output() / "b/model.safetensors"));
  EXPECT_TRUE(contents(output() / "a/config.json") == contents(output() / "b/config.json"));
  EXPECT_TRUE(contents(output() / "a/tokenizer.json") == contents(tokenizer));
  request.extra_files = {output() / "none"};
  EXPECT_THROW(checkpoint::save_model(request, run.engine->state().at(0), *run.comm), IoError);
}

}  // namespace
}  // namespace tessera::train
