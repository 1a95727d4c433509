/// The directory of checkpoints: which one is named, found and listed.
#include "tessera/checkpoint/format/directory.hpp"
#include "damage_fixture.hpp"

using namespace tessera;
using namespace tessera::test;
using ::testing::AllOf;
using ::testing::HasSubstr;

namespace {

using Directory = Damage;

TEST_F(Directory, LatestIsFollowed) {
  auto const found = checkpoint::find_latest(dir.path());
  ASSERT_TRUE(found);
  EXPECT_EQ(found->step, 20);
  EXPECT_EQ(found->note, "");
}

TEST_F(Directory, AnOlderCompleteCheckpointIsFoundAndNamed) {
  fs::remove(step / "manifest.json");
  auto found = checkpoint::find_latest(dir.path());
  ASSERT_TRUE(found);
  EXPECT_EQ(found->step, 10);
  EXPECT_THAT(found->note, AllOf(HasSubstr("`latest` names step_00000020, which is not complete"),
                                 HasSubstr("step_00000010")));
  fs::remove_all(step);
  found = checkpoint::find_latest(dir.path());
  EXPECT_EQ(found->step, 10);
  write_file(dir / "latest", "../../etc\n");
  EXPECT_EQ(checkpoint::find_latest(dir.path())->step, 10);
  fs::remove(dir / "latest");
  found = checkpoint::find_latest(dir.path());
  EXPECT_EQ(found->step, 10);
  EXPECT_THAT(found->note, HasSubstr("has no `latest`"));
  EXPECT_FALSE(checkpoint::find_latest(dir.path(), {10}));
  EXPECT_FALSE(checkpoint::find_latest(dir / "nowhere"));
}

TEST_F(Directory, ARefusedStepIsSkipped) {
  auto const found = checkpoint::find_latest(dir.path(), {20});
  ASSERT_TRUE(found);
  EXPECT_EQ(found->step, 10);
}

TEST_F(Directory, ListingTellsCompleteFromDamaged) {
  fs::remove(step / "shard_00001.h5");
  fs::create_directory(dir / "step_00000030.tmp.1");
  auto const list = checkpoint::list_checkpoints(dir.path());
  ASSERT_EQ(list.size(), 2u);
  EXPECT_TRUE(list[0].is_complete);
  EXPECT_FALSE(list[0].is_latest);
  EXPECT_FALSE(list[1].is_complete);
  EXPECT_TRUE(list[1].is_latest);
  EXPECT_THAT(list[1].problem, HasSubstr("shard_00001.h5"));
  EXPECT_GT(list[0].bytes, checkpoint::read_manifest(list[0].directory).parameter_count() * 12);
}

TEST_F(Directory, WhereToLookIsSaid) {
  EXPECT_THAT(message_of<IoError>([&] { checkpoint::resolve_checkpoint(dir / "none"); }),
              HasSubstr("is not a directory"));
  EXPECT_THAT(message_of<IoError>([&] { checkpoint::resolve_checkpoint(dir.path(), "99"); }),
              HasSubstr("has no checkpoint step_00000099; it has step_"));
  EXPECT_THAT(message_of<UsageError>([&] { checkpoint::resolve_checkpoint(dir.path(), "../x"); }),
              HasSubstr("is not the name of a checkpoint"));
  EXPECT_EQ(checkpoint::resolve_checkpoint(dir.path(), "10").filename(), "step_00000010");
  EXPECT_EQ(checkpoint::resolve_checkpoint(step).filename(), "step_00000020");
  ScratchDirectory empty;
  EXPECT_THAT(message_of<IoError>([&] { checkpoint::resolve_checkpoint(empty.path()); }),
              HasSubstr("has no checkpoint; one is a directory"));
  fs::remove(step / "manifest.json");
  fs::remove(dir / "step_00000010/manifest.json");
  EXPECT_THAT(message_of<DataError>([&] { checkpoint::resolve_checkpoint(dir.path()); }),
              HasSubstr("both checkpoints"));
}

}  // namespace
