/// Reading manifest.json: what is accepted, and what is refused with its place.
#include "damage_fixture.hpp"

using namespace tessera;
using namespace tessera::test;
using ::testing::AllOf;
using ::testing::HasSubstr;

namespace {

using Manifest = Damage;

TEST_F(Manifest, AnEditedManifestIsRefused) {
  std::string const text = read_file(step / "manifest.json");
  write_file(step / "manifest.json", replaced(text, "\"seed\": 42", "\"seed\": 43"));
  EXPECT_THAT(manifest_error(), HasSubstr("does not match its own checksum"));
  write_file(step / "manifest.json", text.substr(0, text.size() / 2));
  EXPECT_THAT(manifest_error(), HasSubstr("manifest.json, line "));
  write_file(step / "manifest.json", "");
  EXPECT_THAT(manifest_error(), HasSubstr("too early"));
  write_file(step / "manifest.json", text + "{}");
  EXPECT_THAT(manifest_error(), HasSubstr("text follows the end"));
}

TEST_F(Manifest, ANewerVersionIsRefused) {
  edit("\"version\": 1", "\"version\": 4");
  EXPECT_THAT(manifest_error(), HasSubstr("format version 4; this program reads up to 3"));
}

TEST_F(Manifest, UnknownMembersAreNoError) {
  edit("\"step\": 20", "\"remark\": {\"a\": [1, \"}\"]}, \"step\": 20");
  EXPECT_EQ(checkpoint::read_manifest(step).step, 20);
}

TEST_F(Manifest, WrongFieldsAreNamed) {
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

TEST_F(Manifest, AnUnknownCompressionIsRefused) {
  edit("\"ranks\": 1}", "\"ranks\": 1, \"compression\": \"shuffle+zstd\"}");
  EXPECT_THAT(manifest_error(), HasSubstr("compression 'shuffle+zstd' is not known"));
}

TEST_F(Manifest, IsReadAsItWasWritten) {
  auto const m = checkpoint::read_manifest(step);
  auto const again = checkpoint::parse_manifest(checkpoint::manifest_text(m), step);
  EXPECT_EQ(again.tensors, m.tensors);
  EXPECT_EQ(again.shards, m.shards);
  EXPECT_EQ(checkpoint::manifest_text(again), checkpoint::manifest_text(m));
}

}  // namespace
