/// Whatever happens to the files of a checkpoint: it is refused with file and tensor, or an older
/// one is found.
#include <sys/stat.h>

#include "damage_fixture.hpp"
#include "tessera/checkpoint/format/directory.hpp"
#include "tessera/checkpoint/save/restore.hpp"
#include "tessera/checkpoint/tools/consolidate.hpp"
#include "tessera/checkpoint/tools/verify.hpp"

using namespace tessera;
using namespace tessera::test;
using ::testing::AllOf;
using ::testing::HasSubstr;

namespace {

std::string restore_error(fs::path const& step) {
  return message_of<DataError>([&] {
    auto const manifest = checkpoint::read_manifest(step);
    zero::PartitionPlan const plan(toy_units(), 1);
    RankState state(plan, 0);
    checkpoint::restore_rank(manifest, plan, first_rank, state.views());
  });
}

TEST_F(Damage, AFlippedBitIsFoundInEveryTensor) {
  auto const m = checkpoint::read_manifest(step);
  for (auto const& tensor : m.tensors)
    for (std::size_t s = 0; s < m.states.size(); ++s) {
      auto const& extent = tensor.extents.back();
      std::int64_t const at = extent.states[s].file_offset + extent.numel * 4 - 1;
      flip_bit(m.shard_path(extent.shard), at);
      EXPECT_THAT(
          restore_error(step),
          AllOf(HasSubstr(m.shards[static_cast<std::size_t>(extent.shard)].file),
                HasSubstr("is damaged"), HasSubstr(m.states[s] + " of tensor " + tensor.name)));
      auto const report = checkpoint::verify(step);
      ASSERT_EQ(report.problems.size(), 1u);
      EXPECT_THAT(report.problems[0], HasSubstr(tensor.name));
      flip_bit(m.shard_path(extent.shard), at);
    }
  EXPECT_TRUE(checkpoint::verify(step).ok());
}

TEST_F(Damage, ATruncatedShardIsNamed) {
  fs::resize_file(step / "shard_00001.h5", fs::file_size(step / "shard_00001.h5") - 1);
  EXPECT_THAT(restore_error(step), AllOf(HasSubstr("shard_00001.h5"), HasSubstr("truncated")));
  EXPECT_FALSE(checkpoint::verify(step).ok());
  EXPECT_THAT(checkpoint::find_problem(step), HasSubstr("shard_00001.h5"));
}

TEST_F(Damage, AMissingShardIsNamed) {
  fs::remove(step / "shard_00000.h5");
  EXPECT_THAT(restore_error(step), AllOf(HasSubstr("shard_00000.h5"), HasSubstr("is missing")));
  EXPECT_FALSE(checkpoint::verify(step).ok());
}

TEST_F(Damage, AShardOfAnotherStepIsRefused) {
  fs::copy_file(dir / "step_00000010/shard_00001.h5", step / "shard_00001.h5",
                fs::copy_options::overwrite_existing);
  EXPECT_THAT(restore_error(step), HasSubstr("is damaged"));
  EXPECT_THAT(checkpoint::verify(step).problems,
              ::testing::Contains(HasSubstr("step is 10, the manifest says 20")));
}

TEST_F(Damage, ASymbolicLinkInThePlaceOfAShardIsRefused) {
  fs::rename(step / "shard_00000.h5", dir / "elsewhere");
  fs::create_symlink(dir / "elsewhere", step / "shard_00000.h5");
  EXPECT_THAT(message_of<IoError>([&] {
                auto const manifest = checkpoint::read_manifest(step);
                zero::PartitionPlan const plan(toy_units(), 1);
                RankState state(plan, 0);
                checkpoint::restore_rank(manifest, plan, first_rank, state.views());
              }),
              HasSubstr("shard_00000.h5"));
}

TEST_F(Damage, AManifestElsewhereIsNotFollowed) {
  fs::rename(step / "manifest.json", dir / "elsewhere");
  fs::create_symlink(dir / "elsewhere", step / "manifest.json");
  EXPECT_THAT(message_of<IoError>([&] { checkpoint::read_manifest(step); }),
              AllOf(HasSubstr("manifest.json"), HasSubstr("symbolic link")));
  fs::remove(step / "manifest.json");
  ASSERT_EQ(::mkfifo((step / "manifest.json").c_str(), 0600), 0);
  EXPECT_THAT(message_of<DataError>([&] { checkpoint::read_manifest(step); }),
              HasSubstr("not a regular file"));
}

TEST_F(Damage, ConsolidationRefusesDamageAndLeavesNothing) {
  auto const m = checkpoint::read_manifest(step);
  flip_bit(m.shard_path(1),
           m.find("scale") ? m.tensors[3].extents.back().states[0].file_offset : 0);
  fs::path const out = dir / "out.safetensors";
  EXPECT_THAT(
      message_of<DataError>([&] { checkpoint::consolidate({.checkpoint = step, .output = out}); }),
      HasSubstr("is damaged"));
  for (auto const& entry : fs::directory_iterator(dir.path()))
    EXPECT_THAT(entry.path().string(), ::testing::Not(HasSubstr("out")));
  fs::remove(m.shard_path(1));
  EXPECT_THAT(
      message_of<DataError>([&] { checkpoint::consolidate({.checkpoint = step, .output = out}); }),
      HasSubstr("is missing"));
}

}  // namespace
