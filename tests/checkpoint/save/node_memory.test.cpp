/// Checkpoints in the memory of nodes, which are directories here: who keeps what, and which
/// checkpoint is taken when directories are lost and copies are damaged.
#include "tessera/checkpoint/save/node_memory.hpp"

#include <fstream>
#include <thread>

#include "shared_fixture.hpp"
#include "tessera/checkpoint/format/directory.hpp"
#include "tessera/checkpoint/save/background_saver.hpp"
#include "tessera/checkpoint/save/restore.hpp"

using namespace tessera;
using namespace tessera::test;
using checkpoint::BackgroundSaver;
using checkpoint::NodeMemory;
using ::testing::ElementsAre;
using ::testing::HasSubstr;
using Transfer = checkpoint::ShardTransfer;

namespace {

TEST(RingTransfers, GoFromEveryNodeToTheNext) {
  NodeMemory const three{"", {0, 0, 1, 1, 2, 2}};
  EXPECT_THAT(checkpoint::ring_transfers(three, 6),
              ElementsAre(Transfer{0, 0, 2}, Transfer{1, 1, 3}, Transfer{4, 4, 0},
                          Transfer{5, 5, 1}, Transfer{2, 2, 4}, Transfer{3, 3, 5}));
  EXPECT_TRUE(checkpoint::ring_transfers({"", {0, 0}}, 2).empty()) << "there is no other node";
}

TEST(RingTransfers, OfUnequalNodesAndOfOneCopyOfTheStates) {
  NodeMemory const unequal{"", {0, 0, 0, 1}};
  EXPECT_THAT(
      checkpoint::ring_transfers(unequal, 4),
      ElementsAre(Transfer{0, 0, 3}, Transfer{1, 1, 3}, Transfer{2, 2, 3}, Transfer{3, 3, 0}));
  EXPECT_THAT(checkpoint::ring_transfers({"", {0, 0, 1, 1}}, 2),
              ElementsAre(Transfer{0, 0, 2}, Transfer{1, 1, 3}))
      << "the ranks of the other node have the same states";
}

/// Half of the ranks are one node.
class MemoryOfNodes : public SharedRun {
 protected:
  MemoryOfNodes() {
    int const ranks = comm->size();
    for (int rank = 0; rank < ranks; ++rank)
      memory.node_of.push_back(ranks > 1 && rank >= ranks / 2 ? 1 : 0);
    memory.directory = directory_of(memory.node_of[static_cast<std::size_t>(comm->rank())]);
  }
  fs::path directory_of(int node) { return dir / concat("node", node); }
  fs::path step_of(int node, std::int64_t step) {
    return directory_of(node) / checkpoint::step_name(step);
  }
  /// The node that has a copy of the shards of @p node.
  int partner_of(int node) const { return (node + 1) % memory.nodes(); }

  void begin(std::int64_t step) {
    saver.begin_in_memory(memory, request_for(dir / "unused", step, plan, units),
                          state.fill(step).views(), BackgroundSaver::Source::snapshot);
    state.fill(1234);  // the training continues
  }
  void save(std::int64_t step) {
    begin(step);
    saver.finish();
  }
  /// The step that is restored, with all elements; -1: none.
  std::int64_t restored(zero::PartitionPlan const& onto, checkpoint::StepRange const& steps = {}) {
    comm->barrier();
    auto const found = checkpoint::find_generation(memory, steps, *comm);
    if (!found) return -1;
    int const rank = value(onto.rank_of(comm->rank()));
    RankState read(onto, rank);
    auto const fetched =
        checkpoint::fetch_shards(*found, memory, onto, checkpoint::layers_of(read.views()), *comm);
    checkpoint::restore(found->manifest, onto, read.views(), *comm);
    EXPECT_EQ(read.wrong(found->manifest.step), 0);
    for (auto const& file : fetched) EXPECT_TRUE(fs::remove(file));
    comm->barrier();
    return found->manifest.step;
  }
  std::int64_t restored() { return restored(plan); }

  /// Runs @p work on one rank, between the calls of all ranks.
  void once(std::function<void()> const& work) {
    comm->barrier();
    if (comm->rank() == 0) work();
    comm->barrier();
  }
  void damage(int node, std::int64_t step, int shard) {
    once([&] { flip(step_of(node, step), shard); });
  }
  /// Flips a bit of an element.
  static void flip(fs::path const& directory, int shard) {
    auto const manifest = checkpoint::read_manifest(directory);
    for (auto const& tensor : manifest.tensors)
      for (auto const& extent : tensor.extents) {
        if (extent.shard != shard) continue;
        return flip_at(directory / manifest.shards[static_cast<std::size_t>(shard)].file,
                       extent.states[1].file_offset);
      }
  }
  static void flip_at(fs::path const& file, std::int64_t offset) {
    std::fstream stream(file, std::ios::in | std::ios::out | std::ios::binary);
    stream.seekg(offset);
    char const byte = static_cast<char>(stream.get() ^ 16);
    stream.seekp(offset);
    stream.put(byte);
    ASSERT_TRUE(stream.good());
  }
  /// The lowest rank of the last node, whose shard has its number.
  int shard_of_last_node() const { return memory.ranks_of(memory.nodes() - 1).front(); }

  NodeMemory memory;
  RankState state{plan, comm->rank()};
  BackgroundSaver saver{*comm, 2};
};

TEST_F(MemoryOfNodes, HoldsEveryShardTwiceAndTwoCheckpoints) {
  for (std::int64_t const step : {3, 6, 9}) save(step);
  for (int node = 0; node < memory.nodes(); ++node) {
    auto const listed = checkpoint::list_checkpoints(directory_of(node));
    ASSERT_EQ(listed.size(), 2U);
    EXPECT_EQ(listed[0].step, 6);
    EXPECT_EQ(listed[1].step, 9);
    for (int shard = 0; shard < comm->size(); ++shard)
      EXPECT_TRUE(fs::exists(step_of(node, 9) / concat("shard_0000", shard, ".h5")))
          << "of two nodes each has all";
  }
  EXPECT_EQ(restored(), 9);
  EXPECT_EQ(restored(plan, {.before = 9}), 6);
  EXPECT_EQ(restored(plan, {.after = 9}), -1) << "the one on disk is as new";
}

TEST_F(MemoryOfNodes, AnUnfinishedSaveDoesNotCount) {
  save(3);
  begin(6);
  comm->barrier();
  EXPECT_EQ(restored(), 3) << "shards without a manifest";
  saver.finish();
  EXPECT_EQ(restored(), 6);
}

TEST_F(MemoryOfNodes, ALostDirectoryIsRestoredFromThePartner) {
  if (memory.nodes() < 2) GTEST_SKIP() << "there is no partner";
  save(3);
  save(6);
  once([&] { fs::remove_all(directory_of(1)); });
  EXPECT_EQ(restored(), 6);
  EXPECT_FALSE(fs::exists(step_of(1, 6) / "shard_00000.h5")) << "what was fetched is removed";
  checkpoint::forget_after(memory, 6, *comm);
  comm->barrier();
  save(9);
  EXPECT_EQ(restored(), 9);
  once([&] {
    for (int node : {0, 1}) fs::remove_all(directory_of(node));
  });
  EXPECT_EQ(restored(), -1);
}

TEST_F(MemoryOfNodes, ADamagedCopyIsReplacedByTheOther) {
  if (memory.nodes() < 2) GTEST_SKIP() << "there is no partner";
  save(3);
  save(6);
  damage(1, 6, shard_of_last_node());
  EXPECT_EQ(restored(), 6);
  damage(partner_of(1), 6, 0);  // the own copy of a shard of the other node
  EXPECT_EQ(restored(), 6) << "own and partner's copies are mixed";
  damage(partner_of(1), 6, shard_of_last_node());
  EXPECT_EQ(restored(), 3) << "both copies of a shard are damaged";
  once([&] { fs::remove_all(step_of(0, 3)); });
  EXPECT_EQ(restored(), 3) << "each checkpoint is looked at by itself";
}

TEST_F(MemoryOfNodes, WithoutAPartnerADamagedShardLeadsToTheOlderOne) {
  if (memory.nodes() > 1) GTEST_SKIP() << "there is a partner";
  save(3);
  save(6);
  damage(0, 6, 0);
  EXPECT_EQ(restored(), 3);
  once([&] { fs::resize_file(step_of(0, 3) / "shard_00000.h5", 1000); });
  EXPECT_EQ(restored(), -1);
}

TEST_F(MemoryOfNodes, AManifestOnOneNodeIsEnough) {
  if (memory.nodes() < 2) GTEST_SKIP() << "there is no other node";
  save(3);
  save(6);
  once([&] { fs::remove(step_of(1, 6) / "manifest.json"); });
  EXPECT_EQ(restored(), 6);
  EXPECT_TRUE(fs::exists(step_of(1, 6) / "manifest.json")) << "its shards count again";
  once([&] { flip_at(step_of(0, 6) / "manifest.json", 1); });
  EXPECT_EQ(restored(), 6) << "the other node has an undamaged one";
}

TEST_F(MemoryOfNodes, ACopyThatIsDamagedBeforeItCountsFailsTheSaveOnly) {
  save(3);
  begin(6);
  while (comm::all_reduce_value(*comm, std::int64_t{saver.disk_works()}, comm::ReduceOp::max) != 0)
    std::this_thread::sleep_for(std::chrono::milliseconds(2));
  std::int64_t const offset = 4 * 1024;
  auto const shard = step_of(0, 6) / "shard_00000.h5";
  once([&] {
    for (auto at = static_cast<std::int64_t>(fs::file_size(shard)) - 1; at > offset; at -= 512)
      flip_at(shard, at);
  });
  EXPECT_FALSE(saver.advance()) << "it is sent";
  try {
    saver.finish();
    FAIL() << "the damage was not found";
  } catch (DataError const& e) {
    EXPECT_THAT(e.what(), HasSubstr("shard_00000.h5 is damaged"));
  }
  EXPECT_FALSE(saver.in_flight());
  EXPECT_EQ(restored(), 3);
  save(9);
  EXPECT_EQ(restored(), 9);
}

TEST_F(MemoryOfNodes, AnyNumberOfRanksRestores) {
  save(3);
  zero::PartitionPlan const one(units, 1);  // every rank has all states
  EXPECT_EQ(restored(one), 3);
  if (memory.nodes() < 2) return;
  once([&] { fs::remove_all(directory_of(0)); });
  EXPECT_EQ(restored(one), 3);
  memory.node_of.assign(memory.node_of.size(), 0);  // the ranks are on one node now
  memory.directory = directory_of(1);
  EXPECT_EQ(restored(), 3);
}

TEST_F(MemoryOfNodes, ForgetsWhatTheRunComputesAgain) {
  save(3);
  save(6);
  once([&] { fs::create_directories(step_of(0, 2)); });  // left by an interrupted save
  checkpoint::forget_after(memory, 3, *comm);
  EXPECT_EQ(restored(), 3);
  std::vector<std::string> const left{"step_00000003"};
  EXPECT_EQ(names("node0"), left);
}

TEST_F(MemoryOfNodes, ThatDoNotFitAreRefusedWithTheNumbers) {
  checkpoint::require_memory(memory, 1000, 1, *comm);
  try {
    checkpoint::require_memory(memory, std::size_t{1} << 50, 1, *comm);
    FAIL() << "a pebibyte fits";
  } catch (Error const& e) {
    EXPECT_EQ(e.code(), ExitCode::internal);
    EXPECT_THAT(e.what(), HasSubstr("--memory_save_steps needs "));
    EXPECT_THAT(e.what(), HasSubstr(" left ("));
  }
}

}  // namespace
