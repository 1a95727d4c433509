/// Saves in phases over real ranks: what a snapshot holds, and where a failure shows.
#include <sys/resource.h>
#include <unistd.h>

#include <csignal>
#include <fstream>
#include <thread>

#include "becomes_true.hpp"
#include "shared_fixture.hpp"
#include "tessera/checkpoint/save/background_saver.hpp"
#include "tessera/checkpoint/save/restore.hpp"
#include "tessera/checkpoint/tools/verify.hpp"
#include "tessera/comm/compose/host_collectives.hpp"
#include "tessera/memory/buffer.hpp"

using namespace tessera;
using namespace tessera::test;
using checkpoint::BackgroundSaver;
using ::testing::AllOf;
using ::testing::HasSubstr;

namespace {

class SaverOverRanks : public SharedRun {
 protected:
  checkpoint::SaveRequest request(std::string const& name, std::int64_t step) {
    return request_for(dir / name, step, plan, units);
  }
  checkpoint::SavedCheckpoint save_and_wait(std::string const& name, std::int64_t step) {
    saver.begin(request(name, step), state.fill(step).views(), BackgroundSaver::Source::in_place);
    return saver.finish();
  }
  bool rest() {
    return comm::all_reduce_value(*comm, std::int64_t{saver.disk_works()}, comm::ReduceOp::max) ==
           0;
  }
  /// Looks at all disks after each step, as a training does. @return looks until the outcome
  int train_until_done(checkpoint::SavedCheckpoint& saved) {
    for (int looks = 1;; ++looks) {
      std::this_thread::sleep_for(std::chrono::milliseconds(2));  // a step of the training
      if (!rest()) continue;
      if (auto const done = saver.advance()) {
        saved = *done;
        return looks;
      }
    }
  }

  RankState state{plan, comm->rank()};
  BackgroundSaver saver{*comm, 2};
};

TEST_F(SaverOverRanks, ASnapshotIsWhatAWaitingSaveWrites) {
  auto const waited = save_and_wait("waiting", 9);
  saver.begin(request("background", 9), state.views(), BackgroundSaver::Source::snapshot);
  state.fill(1234);  // the training continues
  EXPECT_TRUE(saver.in_flight());
  EXPECT_EQ(saver.step(), 9);
  checkpoint::SavedCheckpoint saved;
  EXPECT_GE(train_until_done(saved), 2) << "a look after the writes and one after the publication";
  EXPECT_FALSE(saver.in_flight());
  EXPECT_EQ(saved.bytes, waited.bytes);
  EXPECT_LE(saved.stall_seconds, saved.seconds);
  auto const one = checkpoint::read_manifest(waited.directory),
             other = checkpoint::read_manifest(saved.directory);
  EXPECT_EQ(one.tensors, other.tensors) << "places or checksums differ";
  EXPECT_EQ(one.shards, other.shards);
  EXPECT_EQ(names("background"), (std::vector<std::string>{"latest", "step_00000009"}));
  EXPECT_TRUE(checkpoint::verify(saved.directory).ok());
}

TEST_F(SaverOverRanks, SnapshotMemoryIsNamedAndUsedAgain) {
  auto const held = [] {
    std::size_t bytes = 0;
    for (auto const& entry : memory::MemoryTracker::of_process().entries())
      if (entry.name == "checkpoint snapshot") bytes += entry.bytes;
    return bytes;
  };
  EXPECT_EQ(held(), 0u);
  for (std::int64_t step : {1, 2, 3}) {
    saver.begin(request("checkpoints", step), state.fill(step).views(),
                BackgroundSaver::Source::snapshot);
    saver.finish();
    EXPECT_EQ(held(), BackgroundSaver::snapshot_bytes(plan, checkpoint::layers_of(state.views())));
  }
  EXPECT_TRUE(checkpoint::verify(dir / "checkpoints/step_00000003").ok());
}

std::int64_t resident_bytes() {
  std::ifstream statm("/proc/self/statm");
  std::int64_t mapped = 0, resident = 0;
  statm >> mapped >> resident;
  return resident * ::sysconf(_SC_PAGESIZE);
}

TEST_F(SaverOverRanks, ReservedMemoryHasItsPagesBeforeTheFirstSave) {
  if (memory::Buffer page("page", memory::Purpose::workspace, 4096); !page.populate())
    GTEST_SKIP() << "the kernel cannot populate pages";
  constexpr std::int64_t numel = 1 << 24;
  memory::ParameterSpec weight;
  weight.name = "w";
  weight.shape = {numel};
  zero::PartitionPlan const large({{"unit", {weight}}}, comm->size());
  auto const before = resident_bytes();
  saver.reserve(large, {{optim::Extent::elementwise, {"fp32"}}});
  auto const wanted = before + numel / comm->size() * 4 * 3 / 4;
  EXPECT_TRUE(becomes_true([&] { return resident_bytes() >= wanted; })) << resident_bytes();
}

TEST_F(SaverOverRanks, AFailedWriteShowsAtTheNextCallOnAllRanks) {
  save_and_wait("checkpoints", 1);
  int const victim = comm->size() - 1;
  std::signal(SIGXFSZ, SIG_IGN);
  rlimit before{};
  getrlimit(RLIMIT_FSIZE, &before);
  rlimit const small{20000, before.rlim_max};
  if (comm->rank() == victim) setrlimit(RLIMIT_FSIZE, &small);
  saver.begin(request("checkpoints", 2), state.fill(2).views(), BackgroundSaver::Source::snapshot);
  ASSERT_TRUE(becomes_true([&] { return rest(); }));
  setrlimit(RLIMIT_FSIZE, &before);
  std::string const message = message_of<IoError>([&] { (void)saver.advance(); });
  EXPECT_THAT(message, AllOf(HasSubstr(concat("step_00000002.tmp.1/shard_0000", victim, ".h5")),
                             HasSubstr("File too large")));
  EXPECT_FALSE(saver.in_flight());
  EXPECT_EQ(names("checkpoints"), (std::vector<std::string>{"latest", "step_00000001"}));
  EXPECT_EQ(read_file(dir / "checkpoints/latest"), "step_00000001\n");
  EXPECT_EQ(save_and_wait("checkpoints", 3).directory, dir / "checkpoints/step_00000003");
}

TEST_F(SaverOverRanks, AFailedPublicationLeavesTheOldCheckpoint) {
  save_and_wait("checkpoints", 1);
  saver.begin(request("checkpoints", 2), state.fill(2).views(), BackgroundSaver::Source::snapshot);
  ASSERT_TRUE(becomes_true([&] { return rest(); }));
  if (comm->rank() == 0)
    fs::create_directories(dir / "checkpoints/step_00000002.tmp.1/manifest.json/in the way");
  comm->barrier();
  EXPECT_FALSE(saver.advance().has_value());
  std::string const message = message_of<IoError>([&] { saver.finish(); });
  EXPECT_THAT(message, HasSubstr("manifest.json"));
  EXPECT_EQ(names("checkpoints"), (std::vector<std::string>{"latest", "step_00000001"}));
  EXPECT_TRUE(checkpoint::verify(dir / "checkpoints/step_00000001").ok());
}

TEST_F(SaverOverRanks, AnAbandonedSaveIsRemovedLater) {
  save_and_wait("checkpoints", 1);
  {
    BackgroundSaver leaving(*comm);
    leaving.begin(request("checkpoints", 2), state.fill(2).views(),
                  BackgroundSaver::Source::snapshot);
  }
  EXPECT_EQ(names("checkpoints"),
            (std::vector<std::string>{"latest", "step_00000001", "step_00000002.tmp.1"}));
  if (comm->rank() == 0) checkpoint::remove_unfinished_saves(dir / "checkpoints");
  EXPECT_EQ(names("checkpoints"), (std::vector<std::string>{"latest", "step_00000001"}));
}

TEST_F(SaverOverRanks, OldOnesArePrunedInTheBackground) {
  for (std::int64_t step : {1, 2, 3, 4}) {
    auto asked = request("checkpoints", step);
    asked.keep = 2;
    saver.begin(asked, state.fill(step).views(), BackgroundSaver::Source::snapshot);
    checkpoint::SavedCheckpoint saved;
    train_until_done(saved);
  }
  saver.finish_deletion();
  EXPECT_EQ(names("checkpoints"),
            (std::vector<std::string>{"latest", "step_00000003", "step_00000004"}));
}

}  // namespace
