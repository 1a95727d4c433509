/// The JSON schema of manifest.json: all that a save or a conversion writes is valid, what the
/// reader refuses in structure is not.
#include <cstdio>
#include <cstdlib>

#include "fixture.hpp"
#include "tessera/checkpoint/tools/convert.hpp"

using namespace tessera;
using namespace tessera::test;
using ::testing::HasSubstr;
using ::testing::StartsWith;

namespace {

/// What the validator says about each file; empty when there is no validator.
std::vector<std::string> validate(std::vector<fs::path> const& files, std::string& missing) {
  char const* const from_environment = std::getenv("TESSERA_ORACLE_PYTHON");
  std::string command = concat(from_environment ? from_environment : "python3", " ",
                               TESSERA_TEST_DATA, "/checkpoint/validate.py ", TESSERA_TEST_DATA,
                               "/../docs/reference/manifest.schema.json");
  for (auto const& file : files) command += " " + file.string();
  FILE* const pipe = popen((command + " 2>&1").c_str(), "r");
  std::vector<std::string> lines(1);
  for (int c = pipe ? std::fgetc(pipe) : EOF; c != EOF; c = std::fgetc(pipe)) {
    if (c == '\n')
      lines.emplace_back();
    else
      lines.back().push_back(static_cast<char>(c));
  }
  lines.pop_back();
  int const status = pclose(pipe);
  if (WIFEXITED(status) && WEXITSTATUS(status) == 77) {
    missing = lines[0];
    return {};
  }
  EXPECT_EQ(status, 0) << ::testing::PrintToString(lines);
  EXPECT_EQ(lines.size(), files.size()) << ::testing::PrintToString(lines);
  return lines;
}

#define TESSERA_NEEDS_VALIDATOR(missing) \
  if (!(missing).empty())                \
  GTEST_SKIP()                           \
      << (missing)                       \
      << " Install python3-jsonschema, or set TESSERA_ORACLE_PYTHON to a Python that has it."

TEST(Schema, EverythingWrittenIsValid) {
  ScratchDirectory dir;
  std::vector<fs::path> files{
      save_toy(dir / "one", 1, 1).directory / "manifest.json",
      save_toy(dir / "many", 2, 5).directory / "manifest.json",
      save_toy(dir / "pairs", 3, 5, 0, 24, starts_at({0, 2, 4})).directory / "manifest.json"};
  checkpoint::convert({.source = dir / "many", .destination = dir / "all", .ranks_per_file = 99});
  checkpoint::convert({.source = dir / "pairs",
                       .destination = dir / "gzip",
                       .compression = checkpoint::Compression::shuffle_gzip});
  checkpoint::convert({.source = dir / "gzip", .destination = dir / "cut", .ranks = 3});
  for (auto const* name : {"all", "gzip", "cut"}) files.push_back(dir / name / "manifest.json");
  std::string missing;
  auto const lines = validate(files, missing);
  TESSERA_NEEDS_VALIDATOR(missing);
  for (std::size_t i = 0; i < lines.size(); ++i) EXPECT_EQ(lines[i], "valid") << files[i];
}

struct Broken {
  char const *from, *to, *message;
};

/// Edits that schema and reader refuse alike.
TEST(Schema, BrokenOnesAreNot) {
  Broken const plain[] = {
      {"\"tessera-checkpoint\"", "\"other\"", "format"},
      {"\"version\": 1", "\"version\": 4", "version"},
      {"\"step\": 2", "\"step\": -2", "step"},
      {"\"step\": 2", "\"step\": 2.5", "step"},
      {"\"step\": 2", "\"step\": \"2\"", "step"},
      {"\"step\": 2", "\"stop\": 2", "'step' is a required property"},
      {"\"world_size\": 2", "\"world_size\": 0", "world_size"},
      {"\"checksum_block_bytes\": 4194304", "\"checksum_block_bytes\": 6", "checksum_block_bytes"},
      {"[\"fp32\", ", "[\"exp_avg\", ", "states"},
      {"shard_00001.h5", "../shard_00001.h5", "shards/1/file"},
      {"shard_00001.h5", "a/b.h5", "shards/1/file"},
      {"\"shape\": [101, 24]", "\"shape\": []", "tensors/0/shape"},
      {"\"shape\": [101, 24]", "\"shape\": [0, 24]", "tensors/0/shape"},
      {"\"dtype\": \"fp32\"", "\"dtype\": \"fp8\"", "tensors/0/dtype"},
      {"\"file_offsets\"", "\"offsets\"", "tensors/0/pieces/0"},
      {"\"xxh3\": [\"", "\"xxh3\": [\"g", "tensors/0/pieces/0/xxh3"},
      {"\"numel\": ", "\"numel\": -", "tensors/0/pieces/0/numel"}};
  Broken const packed[] = {
      {"shuffle+gzip", "shuffle+zstd", "shards/0/compression"},
      {"\"chunks\": [[[", "\"chunks\": [[[1, ", "tensors/0/pieces/0/chunks/0/0"},
      {"\"chunks\": [[[", "\"chunks\": [[], [[", "tensors/0/pieces/0/chunks/0"}};
  ScratchDirectory dir;
  auto const step = save_toy(dir / "run", 2, 2).directory;
  checkpoint::convert({.source = step,
                       .destination = dir / "gzip",
                       .compression = checkpoint::Compression::shuffle_gzip});
  std::vector<fs::path> files;
  std::vector<std::string> messages;
  auto const edit = [&](fs::path const& source, Broken const& broken) {
    std::string text = read_file(source);
    auto const at = text.find(broken.from);
    ASSERT_NE(at, std::string::npos) << broken.from;
    text.replace(at, std::string(broken.from).size(), broken.to);
    files.push_back(dir / concat(files.size(), ".json"));
    messages.emplace_back(broken.message);
    write_file(files.back(), text);
    EXPECT_THROW(checkpoint::parse_manifest(text, dir.path()), DataError) << broken.to;
  };
  for (auto const& broken : plain) edit(step / "manifest.json", broken);
  for (auto const& broken : packed) edit(dir / "gzip/manifest.json", broken);
  std::string missing;
  auto const lines = validate(files, missing);
  TESSERA_NEEDS_VALIDATOR(missing);
  for (std::size_t i = 0; i < lines.size(); ++i) {
    EXPECT_THAT(lines[i], StartsWith("invalid")) << read_file(files[i]);
    EXPECT_THAT(lines[i], HasSubstr(messages[i]));
  }
}

}  // namespace
