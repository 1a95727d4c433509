/// Whatever happens to the files of a checkpoint: it is refused with file and tensor, or an older
/// one is found.
#include <sys/stat.h>
#include <xxhash.h>

#include "fixture.hpp"
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

std::string replaced(std::string text, std::string const& from, std::string const& to) {
  auto const at = text.find(from);
  EXPECT_NE(at, std::string::npos) << from;
  return text.replace(at, from.size(), to);
}

/// The manifest's own checksum made right again after an edit.
std::string sealed(std::string text) {
  auto const at = text.rfind("\"manifest_xxh3\"");
  return text.substr(0, at) +
         concat(
             "\"manifest_xxh3\": \"",
             [&] {
               char hex[17];
               std::snprintf(hex, sizeof hex, "%016llx",
                             static_cast<unsigned long long>(XXH3_64bits(text.data(), at)));
               return std::string(hex);
             }(),
             "\"\n}\n");
}

class Damage : public ::testing::Test {
 protected:
  Damage() {
    save_toy(dir.path(), 10, 2);
    step = save_toy(dir.path(), 20, 2).directory;
  }
  void edit(std::string const& from, std::string const& to) {
    write_file(step / "manifest.json",
               sealed(replaced(read_file(step / "manifest.json"), from, to)));
  }
  std::string manifest_error() {
    return message_of<DataError>([&] { checkpoint::read_manifest(step); });
  }
  ScratchDirectory dir;
  fs::path step;
};

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

TEST_F(Damage, LatestIsFollowed) {
  auto const found = checkpoint::find_latest(dir.path());
  ASSERT_TRUE(found);
  EXPECT_EQ(found->step, 20);
  EXPECT_EQ(found->note, "");
}

TEST_F(Damage, AnOlderWholeCheckpointIsFoundAndSaid) {
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

TEST_F(Damage, ARefusedStepIsPassedOver) {
  auto const found = checkpoint::find_latest(dir.path(), {20});
  ASSERT_TRUE(found);
  EXPECT_EQ(found->step, 10);
}

TEST_F(Damage, ListingTellsWholeFromDamaged) {
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

TEST_F(Damage, AnEditedManifestIsRefused) {
  std::string const text = read_file(step / "manifest.json");
  write_file(step / "manifest.json", replaced(text, "\"seed\": 42", "\"seed\": 43"));
  EXPECT_THAT(manifest_error(), HasSubstr("does not match its own checksum"));
  write_file(step / "manifest.json", text.substr(0, text.size() / 2));
  EXPECT_THAT(manifest_error(), HasSubstr("line"));
  write_file(step / "manifest.json", "");
  EXPECT_THAT(manifest_error(), HasSubstr("too early"));
  write_file(step / "manifest.json", text + "{}");
  EXPECT_THAT(manifest_error(), HasSubstr("text follows the end"));
}

TEST_F(Damage, ANewerVersionIsRefused) {
  edit("\"version\": 1", "\"version\": 3");
  EXPECT_THAT(manifest_error(), HasSubstr("format version 3; this program reads up to 2"));
}

TEST_F(Damage, UnknownMembersAreNoError) {
  edit("\"step\": 20", "\"remark\": {\"a\": [1, \"}\"]}, \"step\": 20");
  EXPECT_EQ(checkpoint::read_manifest(step).step, 20);
}

TEST_F(Damage, WrongFieldsAreNamed) {
  std::string const good = read_file(step / "manifest.json");
  struct Case {
    char const *from, *to, *message;
  };
  Case const cases[] = {
      {"\"tessera-checkpoint\"", "\"other\"", "format is 'other'"},
      {"\"step\": 20", "\"step\": -1", "'step' is -1"},
      {"\"step\": 20", "\"step\": \"x\"", "expected an integer"},
      {"\"step\": 20", "\"step\": 2.5", "expected an integer"},
      {"\"step\": 20", "\"step\": 20, \"step\": 20", "'step' is listed twice"},
      {"\"step\": 20", "\"steps\": 20", "has no 'step'"},
      {"\"file\": \"shard_00001.h5\"", "\"file\": \"../shard_00001.h5\"",
       "is not a plain file name"},
      {"\"file\": \"shard_00001.h5\"", "\"file\": \"shard_00000.h5\"", "is listed twice"},
      {"\"offset\": 0", "\"offset\": 1", "overlap or leave a hole"},
      {"\"shape\": [101, 24]", "\"shape\": [102, 24]", "elements"},
      {"\"shape\": [101, 24]", "\"shape\": [4294967296, 4294967296]", "too large"},
      {"\"shape\": [101, 24]", "\"shape\": []", "0 dimensions"},
      {"\"dtype\": \"fp32\"", "\"dtype\": \"fp8\"", "dtype 'fp8'"},
      {"\"file_offsets\": [", "\"file_offsets\": [4000000000, ", "file_offsets"},
      {"\"xxh3\": [\"", "\"xxh3\": [\"0", "hexadecimal"},
      {"\"lm_head.weight\"", "\"transformer.wpe.weight\"", "is listed twice"},
      {"\"checksum_block_bytes\": 4194304", "\"checksum_block_bytes\": 4611686018427387904",
       "checksum_block_bytes"},
      {"\"shard\": 0", "\"shard\": 9", "shard 9 of 2"},
  };
  for (auto const& c : cases) {
    write_file(step / "manifest.json", sealed(replaced(good, c.from, c.to)));
    EXPECT_THAT(manifest_error(), AllOf(HasSubstr("manifest.json"), HasSubstr(c.message))) << c.to;
  }
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

TEST_F(Damage, WhereToLookIsSaid) {
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
              HasSubstr("none of the 2 checkpoints"));
}

}  // namespace
