/// Saving and restoring over real ranks: the round trip, and what a failure on one rank leaves
/// behind.
#include <sys/resource.h>

#include <csignal>
#include <limits>

#include "shared_fixture.hpp"
#include "tessera/checkpoint/format/directory.hpp"
#include "tessera/checkpoint/save/background_saver.hpp"
#include "tessera/checkpoint/save/restore.hpp"
#include "tessera/checkpoint/tools/verify.hpp"
#include "tessera/comm/compose/host_collectives.hpp"

using namespace tessera;
using namespace tessera::test;
using ::testing::AllOf;
using ::testing::HasSubstr;

namespace {

/// Writing past this size fails with EFBIG in this process, for a scope.
class FileSizeLimit {
 public:
  explicit FileSizeLimit(rlim_t bytes) {
    std::signal(SIGXFSZ, SIG_IGN);
    getrlimit(RLIMIT_FSIZE, &before_);
    rlimit const now{bytes, before_.rlim_max};
    setrlimit(RLIMIT_FSIZE, &now);
  }
  ~FileSizeLimit() { setrlimit(RLIMIT_FSIZE, &before_); }

 private:
  rlimit before_{};
};

class Save : public SharedRun {
 protected:
  checkpoint::SavedCheckpoint save(std::int64_t step, int keep = 0) {
    RankState state(plan, comm->rank());
    auto request = request_for(dir / "checkpoints", step, plan, units);
    request.keep = keep;
    request.skipped_in_a_row = skipped_in_a_row;
    return checkpoint::save(request, state.fill(step).views(), *comm);
  }
  std::int64_t skipped_in_a_row = 0;
};

TEST_F(Save, RoundTrip) {
  auto const saved = save(100);
  EXPECT_EQ(saved.directory, dir / "checkpoints/step_00000100");
  EXPECT_EQ(names(), (std::vector<std::string>{"latest", "step_00000100"}));
  EXPECT_EQ(read_file(dir / "checkpoints/latest"), "step_00000100\n");
  EXPECT_TRUE(checkpoint::verify(saved.directory).ok());
  EXPECT_EQ(wrong_after_restore(saved.directory, 100), 0);
  std::int64_t bytes = 0;
  for (auto const& entry : fs::directory_iterator(saved.directory))
    bytes += static_cast<std::int64_t>(entry.file_size());
  EXPECT_EQ(saved.bytes, bytes);
}

/// Ranks that share the states in groups: the first group writes, and any number of ranks restores.
TEST_F(Save, ShardGroupsSaveOneCopy) {
  for (int size = 1; size <= comm->size(); size *= 2) {
    zero::PartitionPlan const grouped(units, size);
    RankState state(grouped, value(grouped.rank_of(comm->rank())));
    auto const name = concat("groups-", size);
    auto request = request_for(dir / name, 3, grouped, units);
    auto const saved = checkpoint::save(request, state.fill(3).views(), *comm);
    request.step = 4;
    checkpoint::BackgroundSaver saver(*comm);
    saver.begin(request, state.fill(4).views(), checkpoint::BackgroundSaver::Source::snapshot);
    state.fill(99);
    auto const second = saver.finish();
    EXPECT_EQ(checkpoint::read_manifest(saved.directory).shards.size(),
              static_cast<std::size_t>(size));
    for (auto const& [directory, step] : {std::pair(saved.directory, 3), {second.directory, 4}}) {
      EXPECT_TRUE(checkpoint::verify(directory).ok());
      EXPECT_EQ(wrong_after_restore(directory, step), 0) << "by all ranks, from groups of " << size;
    }
  }
  save(5);
  for (int size = 1; size <= comm->size(); size *= 2) {
    zero::PartitionPlan const grouped(units, size);
    RankState state(grouped, value(grouped.rank_of(comm->rank())));
    checkpoint::restore(checkpoint::read_manifest(dir / "checkpoints/step_00000005", *comm),
                        grouped, state.views(), *comm);
    EXPECT_EQ(state.wrong(5), 0) << "by groups of " << size;
  }
}

TEST_F(Save, AStateOfAnotherShapeIsNotThatOfTheCheckpoint) {
  auto const saved = save(7);
  RankState state(plan, comm->rank());
  auto views = state.fill(8).views();
  views[1].extent = optim::Extent::per_row;
  auto const request = request_for(dir / "checkpoints", 8, plan, units);
  EXPECT_THROW(checkpoint::save(request, views, *comm), InternalError);
  EXPECT_EQ(names(), (std::vector<std::string>{"latest", "step_00000007"}));
  auto const manifest = checkpoint::read_manifest(saved.directory, *comm);
  EXPECT_THROW(checkpoint::restore(manifest, plan, views, *comm), DataError);
}

TEST_F(Save, TheSameStepAgainReplacesIt) {
  save(5);
  RankState state(plan, comm->rank());
  auto const request = request_for(dir / "checkpoints", 5, plan, units);
  checkpoint::save(request, state.fill(77).views(), *comm);
  EXPECT_EQ(names(), (std::vector<std::string>{"latest", "step_00000005"}));
  EXPECT_EQ(wrong_after_restore(dir / "checkpoints/step_00000005", 77), 0);
}

TEST_F(Save, KeepRemovesTheOldest) {
  for (std::int64_t step : {1, 2, 3, 10}) save(step, 2);
  EXPECT_EQ(names(), (std::vector<std::string>{"latest", "step_00000003", "step_00000010"}));
}

TEST_F(Save, CheckpointsThatTheRunWentBackBehindDoNotCountAsKept) {
  for (std::int64_t step : {1, 8, 9}) save(step);
  save(2);
  save(3, 2);
  EXPECT_EQ(names(), (std::vector<std::string>{"latest", "step_00000002", "step_00000003",
                                               "step_00000008", "step_00000009"}));
  if (comm->rank() == 0) fs::remove(dir / "checkpoints/step_00000003/manifest.json");
  comm->barrier();
  EXPECT_EQ(checkpoint::find_latest(dir / "checkpoints")->step, 2)
      << "8 and 9 are of the branch that was left";
}

TEST_F(Save, DamagedCheckpointsDoNotCountAsKept) {
  save(1);
  save(2);
  if (comm->rank() == 0) fs::remove(dir / "checkpoints/step_00000002/shard_00000.h5");
  save(3, 2);
  EXPECT_EQ(names(), (std::vector<std::string>{"latest", "step_00000001", "step_00000002",
                                               "step_00000003"}));
}

TEST_F(Save, ACheckpointWithoutProgressDoesNotPushOutOthers) {
  for (std::int64_t step : {1, 2, 3}) save(step, 2);
  skipped_in_a_row = 1;
  for (std::int64_t step : {4, 5}) {
    save(step, 2);
    EXPECT_EQ(names(), (std::vector<std::string>{"latest", "step_00000002", "step_00000003",
                                                 checkpoint::step_name(step)}));
  }
  auto const listed = checkpoint::list_checkpoints(dir.path());
  EXPECT_TRUE(listed[1].made_progress);
  EXPECT_FALSE(listed[2].made_progress);
  skipped_in_a_row = 0;
  save(6, 2);
  EXPECT_EQ(names(), (std::vector<std::string>{"latest", "step_00000003", "step_00000006"}));
}

/// One value of one rank, in any state, is enough; the older checkpoints stay.
TEST_F(Save, AStateThatIsNotFiniteIsNotPublished) {
  save(1, 1);
  int const victim = comm->size() - 1;
  for (std::size_t const state : {std::size_t{0}, std::size_t{2}})
    for (float const bad :
         {std::numeric_limits<float>::infinity(), std::numeric_limits<float>::quiet_NaN()}) {
      RankState mine(plan, comm->rank());
      mine.fill(2);
      auto const extent = plan.extents(Rank(victim)).back();
      auto const& tensor =
          plan.unit(extent.unit).parameters[static_cast<std::size_t>(extent.parameter)].name;
      if (comm->rank() == victim)
        mine.memory(state)[static_cast<std::size_t>(extent.partition_offset.value())] = bad;
      auto request = request_for(dir / "checkpoints", 2, plan, units);
      request.keep = 1;
      std::string const message =
          message_of<ConfigError>([&] { checkpoint::save(request, mine.views(), *comm); });
      EXPECT_THAT(message, AllOf(HasSubstr("step 2 is not published"),
                                 HasSubstr(concat(state == 0 ? "fp32" : "exp_avg_sq", " of ",
                                                  tensor, " (1 value)"))));
      EXPECT_EQ(names(), (std::vector<std::string>{"latest", "step_00000001"}));
      EXPECT_EQ(read_file(dir / "checkpoints/latest"), "step_00000001\n");
    }
  auto const manifest = checkpoint::read_manifest(dir / "checkpoints/step_00000001");
  EXPECT_TRUE(manifest.nonfinite && manifest.nonfinite->empty()) << "checked, nothing found";
  save(3, 1);
  EXPECT_EQ(wrong_after_restore(dir / "checkpoints/step_00000003", 3), 0);
}

/// Conversions record them; restoring and verifying report them.
TEST_F(Save, ValuesThatAreNotFiniteAreReportedByName) {
  RankState mine(plan, comm->rank());
  mine.fill(2);
  for (auto const& extent : plan.extents(Rank(comm->rank())))
    if (plan.unit(extent.unit).parameters[static_cast<std::size_t>(extent.parameter)].name ==
        "transformer.wte.weight")
      mine.memory(1)[static_cast<std::size_t>(extent.partition_offset.value())] =
          std::numeric_limits<float>::quiet_NaN();
  auto request = request_for(dir / "checkpoints", 2, plan, units);
  request.nonfinite = checkpoint::NonFiniteState::record;
  std::int64_t owners = 0;
  for (int rank = 0; rank < plan.ranks(); ++rank) {
    auto const first = plan.extents(Rank(rank)).front();
    owners += position(first.unit) == 0 && first.parameter == 0 ? 1 : 0;
  }
  std::vector<checkpoint::NonFinite> const expected{{"transformer.wte.weight", "exp_avg", owners}};
  auto const saved = checkpoint::save(request, mine.views(), *comm);
  if (comm->rank() == 0) {
    EXPECT_EQ(saved.nonfinite, expected);
  }
  auto const manifest = checkpoint::read_manifest(saved.directory, *comm);
  EXPECT_EQ(*manifest.nonfinite, expected);
  RankState restored(plan, comm->rank());
  EXPECT_EQ(checkpoint::restore(manifest, plan, restored.views(), *comm).nonfinite, expected);
  for (auto const depth : {checkpoint::VerifyOptions::Depth::everything,
                           checkpoint::VerifyOptions::Depth::structure}) {
    auto const report = checkpoint::verify(saved.directory, {.depth = depth});
    ASSERT_EQ(report.damages, 1);
    EXPECT_EQ(report.found[0].tensor, "transformer.wte.weight");
    EXPECT_THAT(report.found[0].text,
                HasSubstr(concat("exp_avg of transformer.wte.weight (", owners,
                                 owners == 1 ? " value)" : " values)")));
  }
}

TEST_F(Save, AFailureOnOneRankEndsItOnAll) {
  save(1);
  int const victim = comm->size() - 1;
  std::string const message = message_of<IoError>([&] {
    std::unique_ptr<FileSizeLimit> limit;
    if (comm->rank() == victim) limit = std::make_unique<FileSizeLimit>(20000);
    save(2);
  });
  EXPECT_THAT(message, AllOf(HasSubstr(concat("step_00000002.tmp.1/shard_0000", victim, ".h5")),
                             HasSubstr("File too large")));
  if (comm->size() > 1) {
    EXPECT_THAT(message, HasSubstr(concat("rank ", victim, " (host ")));
  }
  EXPECT_EQ(names(), (std::vector<std::string>{"latest", "step_00000001"}));
  EXPECT_EQ(wrong_after_restore(checkpoint::find_latest(dir.path())->directory, 1), 0);
  save(3);
  EXPECT_EQ(wrong_after_restore(dir / "checkpoints/step_00000003", 3), 0);
}

TEST_F(Save, EveryPointOfFailureOfRankZeroLeavesTheOldOne) {
  save(1);
  bool succeeded = false;
  int failures = 0;
  // ever later writes fail: HDF5 metadata, data, view, manifest
  for (rlim_t bytes = 512; !succeeded; bytes = bytes * 5 / 4) {
    try {
      std::unique_ptr<FileSizeLimit> limit;
      if (comm->rank() == 0) limit = std::make_unique<FileSizeLimit>(bytes);
      save(2);
      succeeded = true;
    } catch (IoError const&) {
      ++failures;
      EXPECT_EQ(names(), (std::vector<std::string>{"latest", "step_00000001"})) << bytes;
      EXPECT_EQ(read_file(dir / "checkpoints/latest"), "step_00000001\n");
    }
    comm->barrier();
  }
  EXPECT_GT(failures, 5);
  EXPECT_TRUE(checkpoint::verify(dir / "checkpoints/step_00000001").ok());
  EXPECT_EQ(wrong_after_restore(dir / "checkpoints/step_00000002", 2), 0);
}

TEST_F(Save, ADamagedShardIsRefusedOnAllRanks) {
  auto const saved = save(4);
  auto const manifest = checkpoint::read_manifest(saved.directory, *comm);
  comm->barrier();
  if (comm->rank() == 0)
    flip_bit(manifest.shard_path(0), manifest.tensors[0].extents[0].states[1].file_offset + 5);
  comm->barrier();
  std::string const message =
      message_of<DataError>([&] { wrong_after_restore(saved.directory, 4); });
  EXPECT_THAT(message, AllOf(HasSubstr("shard_00000.h5"),
                             HasSubstr("exp_avg of tensor transformer.wte.weight")));
}

TEST_F(Save, AMissingManifestIsReportedOnAllRanks) {
  std::string const message =
      message_of<IoError>([&] { checkpoint::read_manifest(dir / "nothing", *comm); });
  EXPECT_THAT(message, HasSubstr("nothing/manifest.json"));
}

TEST_F(Save, LeftoversAreRemovedAndAFinishedOneIsKept) {
  auto const saved = save(6);
  comm->barrier();
  if (comm->rank() == 0) {
    fs::create_directory(dir / "checkpoints/step_00000007.tmp.1");
    write_file(dir / "checkpoints/step_00000007.tmp.1/shard_00000.h5", "half");
    fs::create_directory(dir / "checkpoints/.trash.step_00000002.1");
    write_file(dir / "checkpoints/latest.tmp.123", "step");
    fs::rename(saved.directory,
               dir / "checkpoints/step_00000006.tmp.3");  // killed between the last two renames
    EXPECT_EQ(checkpoint::remove_unfinished_saves(dir / "checkpoints"),
              (std::vector<std::string>{".trash.step_00000002.1", "latest.tmp.123",
                                        "step_00000007.tmp.1"}));
  }
  EXPECT_EQ(names(), (std::vector<std::string>{"latest", "step_00000006"}));
  EXPECT_EQ(wrong_after_restore(saved.directory, 6), 0);
}

}  // namespace
