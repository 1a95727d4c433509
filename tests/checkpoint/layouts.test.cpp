/// Shard files of one rank, several, a node's, all: the same content, whoever reads it.
#include <csignal>

#include <sys/resource.h>

#include <numeric>

#include "shared_fixture.hpp"
#include "tessera/checkpoint/save/background_saver.hpp"
#include "tessera/checkpoint/save/restore.hpp"
#include "tessera/checkpoint/tools/consolidate.hpp"
#include "tessera/checkpoint/tools/verify.hpp"
#include "tessera/comm/compose/host_collectives.hpp"

using namespace tessera;
using namespace tessera::test;
using ::testing::AllOf;
using ::testing::HasSubstr;

namespace {

using Starts = std::vector<Rank>;

/// Every element of every rank of another plan.
void expect_restores(fs::path const& step, int ranks, std::int64_t value_step) {
  auto const manifest = checkpoint::read_manifest(step);
  zero::PartitionPlan const plan(toy_units(), ranks, 1);
  for (int rank = 0; rank < ranks; ++rank) {
    RankState state(plan, rank);
    checkpoint::restore_rank(manifest, plan, Rank(rank), state.views());
    EXPECT_EQ(state.wrong(value_step), 0) << step << ", rank " << rank << " of " << ranks;
  }
}

TEST(Layouts, StartsOfFiles) {
  EXPECT_EQ(checkpoint::starts_by_count(7, 3), starts_at({0, 3, 6}));
  EXPECT_EQ(checkpoint::starts_by_count(4, 4), starts_at({0}));
  EXPECT_EQ(checkpoint::starts_by_count(2, 99), starts_at({0}));
  EXPECT_EQ(checkpoint::starts_by_host({"a", "a", "b", "b", "b"}), starts_at({0, 2}));
  EXPECT_EQ(checkpoint::starts_by_host({"a", "b", "a", "b"}), starts_at({0, 1, 2, 3}));
}

/// Saved by N ranks into any files: found complete, restored by M ranks, consolidated to the same
/// bytes as one file for each rank.
TEST(Layouts, EveryReaderFindsTheSame) {
  if (session().info().rank != 0) return;
  for (int const ranks : {1, 2, 3, 5, 8}) {
    ScratchDirectory dir;
    auto const plain = save_toy(dir / "plain", 9, ranks).directory;
    checkpoint::consolidate({.checkpoint = plain, .output = dir / "plain.safetensors"});
    std::string const expected = read_file(dir / "plain.safetensors");
    for (Starts const& starts :
         {checkpoint::starts_by_count(ranks, 2), checkpoint::starts_by_count(ranks, 3),
          starts_at({0}),
          ranks > 4 ? starts_at({0, 1, 4}) : checkpoint::starts_by_count(ranks, 1)}) {
      auto const step = save_toy(dir / concat("files-", starts.size(), "-", starts.back()), 9,
                                 ranks, 0, 24, starts)
                            .directory;
      auto const m = checkpoint::read_manifest(step);
      EXPECT_EQ(m.shards.size(), starts.size());
      EXPECT_EQ(m.needed_version(), static_cast<int>(starts.size()) == ranks ? 1 : 2);
      EXPECT_EQ(std::accumulate(m.shards.begin(), m.shards.end(), 0,
                                [](int sum, auto const& s) { return sum + s.ranks; }),
                ranks);
      auto const report = checkpoint::verify(step);
      EXPECT_TRUE(report.ok()) << ::testing::PrintToString(report.problems);
      for (int const readers : {1, 3, 4}) expect_restores(step, readers, 9);
      checkpoint::consolidate({.checkpoint = step, .output = dir / "shared.safetensors"});
      EXPECT_EQ(read_file(dir / "shared.safetensors"), expected);
    }
  }
}

class SharedFiles : public SharedRun {
 protected:
  checkpoint::SaveRequest request(std::int64_t step, int ranks_per_file) const {
    auto request = request_for(dir / "checkpoints", step, plan, units);
    request.file_starts = checkpoint::starts_by_count(comm->size(), ranks_per_file);
    return request;
  }
};

TEST_F(SharedFiles, RanksWriteTheirPartsIntoOneFile) {
  for (int const per_file : {1, 2, 4}) {
    RankState state(plan, comm->rank());
    auto const saved = checkpoint::save(request(10 + per_file, per_file),
                                        state.fill(10 + per_file).views(), *comm);
    EXPECT_TRUE(checkpoint::verify(saved.directory).ok());
    EXPECT_EQ(checkpoint::read_manifest(saved.directory).shards.size(),
              static_cast<std::size_t>((comm->size() + per_file - 1) / per_file));
    EXPECT_EQ(wrong_after_restore(saved.directory, 10 + per_file), 0);
    comm->barrier();
  }
}

TEST_F(SharedFiles, InTheBackgroundToo) {
  checkpoint::BackgroundSaver saver(*comm);
  RankState state(plan, comm->rank());
  saver.begin(request(3, 2), state.fill(3).views(), checkpoint::BackgroundSaver::Source::snapshot);
  state.fill(4);
  auto const saved = saver.finish();
  EXPECT_TRUE(checkpoint::verify(saved.directory).ok());
  EXPECT_EQ(wrong_after_restore(saved.directory, 3), 0);
}

/// The file of the last ranks cannot be laid out, or not be filled: no rank keeps anything of the
/// save.
TEST_F(SharedFiles, AFailureOfAnyWriterEndsTheSaveOnAll) {
  std::signal(SIGXFSZ, SIG_IGN);
  rlimit before{};
  getrlimit(RLIMIT_FSIZE, &before);
  for (rlim_t const bytes : {rlim_t{512}, rlim_t{26000}}) {
    std::string const message = message_of<IoError>([&] {
      rlimit const limit{bytes, before.rlim_max};
      if (comm->rank() == comm->size() - 1) setrlimit(RLIMIT_FSIZE, &limit);
      RankState state(plan, comm->rank());
      checkpoint::save(request(5, 2), state.fill(5).views(), *comm);
    });
    setrlimit(RLIMIT_FSIZE, &before);
    comm->barrier();
    EXPECT_THAT(message, HasSubstr("File too large"));
    EXPECT_TRUE(fs::is_empty(dir / "checkpoints"));
    comm->barrier();
  }
}

}  // namespace
