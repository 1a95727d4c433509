#include "tessera/train/setup/node_memory.hpp"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <limits>

#include "mpi_test.hpp"
#include "small_run.hpp"
#include "tessera/checkpoint/format/directory.hpp"
#include "tessera/checkpoint/save/background_saver.hpp"
#include "tessera/core/error.hpp"

namespace tessera::train {
namespace {

constexpr auto any_step = std::numeric_limits<std::int64_t>::max();

config::TrainingArguments arguments_with(std::int64_t steps) {
  config::TrainingArguments arguments;
  arguments.do_train = true;
  arguments.memory_save_steps.count = steps;
  return arguments;
}

TEST(NodeMemoryOfRun, IsThatOfTheSupervisor) {
  auto const& session = test::session();
  topology::Environment const none, given{{memory_directory_variable, "/dev/shm/x"}};
  EXPECT_FALSE(node_memory(arguments_with(0), session, given));
  EXPECT_THROW(node_memory(arguments_with(5), session, none), UsageError);
  auto evaluates = arguments_with(5);
  evaluates.do_train = false;
  EXPECT_FALSE(node_memory(evaluates, session, none));
  auto const memory = node_memory(arguments_with(5), session, given);
  ASSERT_TRUE(memory);
  EXPECT_EQ(memory->directory, "/dev/shm/x");
  EXPECT_EQ(memory->node_of.size(), session.nodes().size());
  topology::Environment simulated = given;
  simulated["TESSERA_SIMULATED_NODES"] = "1";
  EXPECT_EQ(node_memory(arguments_with(config::MemorySaveSteps::automatic), session, simulated)
                ->directory,
            "/dev/shm/x/node0");
}

struct NewerOf : ::testing::Test {
  checkpoint::SaveRequest request(std::int64_t step) const {
    return run.save_request(run.files.directory(), step);
  }
  void save_to_memory(std::int64_t step) {
    checkpoint::BackgroundSaver saver(*run.comm);
    saver.begin_in_memory(memory, request(step), run.engine->state(),
                          checkpoint::BackgroundSaver::Source::in_place);
    saver.finish();
  }
  StartingPoint on_disk(std::int64_t step) {
    StartingPoint start;
    start.checkpoint = checkpoint::save(request(step), run.engine->state(), *run.comm).directory;
    return start;
  }
  StartingPoint newer(StartingPoint const& disk, std::int64_t before = any_step) {
    return newer_of(disk, memory, before, *run.comm);
  }

  test::SmallRun run;
  checkpoint::NodeMemory memory{run.files.directory() / "memory", {0}};
};

TEST_F(NewerOf, TheNewerOneIsTaken) {
  EXPECT_TRUE(newer({}).checkpoint.empty()) << "there is none";
  save_to_memory(4);
  auto const first = newer({});
  ASSERT_TRUE(first.memory) << "a run that would start from the beginning";
  EXPECT_EQ(first.memory->manifest.step, 4);
  EXPECT_EQ(first.disk_step, -1);
  EXPECT_TRUE(first.may_fall_back);
  auto const older = newer(on_disk(3));
  ASSERT_TRUE(older.memory);
  EXPECT_EQ(older.disk_step, 3);
  EXPECT_FALSE(newer(on_disk(4)).memory) << "of the same step the one on disk is taken";
  EXPECT_FALSE(newer(on_disk(5)).memory);
}

TEST_F(NewerOf, DamagedOnesArePassedOver) {
  save_to_memory(4);
  save_to_memory(6);
  auto const disk = on_disk(2);
  EXPECT_EQ(newer(disk).memory->manifest.step, 6);
  EXPECT_EQ(newer(disk, 6).memory->manifest.step, 4) << "reading showed damage of 6";
  EXPECT_EQ(newer(disk, 4).checkpoint, disk.checkpoint);
  run.files.write("memory/step_00000006/shard_00000.h5", "damaged");
  EXPECT_EQ(newer(disk).memory->manifest.step, 4);
  std::filesystem::remove_all(memory.directory);
  EXPECT_EQ(newer(disk).checkpoint, disk.checkpoint);
}

}  // namespace
}  // namespace tessera::train
