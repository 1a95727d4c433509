#include "tessera/data/sequences/text_dataset.hpp"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <thread>

#include "error_of.hpp"
#include "scratch_files.hpp"
#include "tessera/core/config_tree.hpp"

using namespace tessera::data;
using tessera::ConfigTree;
using tessera::error_of;
using tessera::ScratchFiles;
using ::testing::ElementsAre;
using ::testing::HasSubstr;
using ::testing::IsEmpty;
namespace fs = std::filesystem;

namespace {

std::string const vectors = TESSERA_TEST_DATA "/data/vectors/";

Tokenizer const& tokenizer() {
  static Tokenizer const it(vectors + "tokenizer/gpt2");
  return it;
}

ConfigTree const& cases() {
  static ConfigTree const tree = ConfigTree::read(vectors + "text/cases.json");
  return tree;
}

std::vector<std::int32_t> copy_of(std::span<std::int32_t const> ids) {
  return {ids.begin(), ids.end()};
}

std::vector<std::int32_t> ids_of(ConfigTree const& tree) {
  std::vector<std::int32_t> out;
  for (auto const& id : tree.as_array()) out.push_back(static_cast<std::int32_t>(id.as_int()));
  return out;
}

/// FNV-1a-64 over the ids as little-endian words.
std::string sum_of(TokenSequences const& sequences) {
  std::uint64_t h = 0xCBF29CE484222325u;
  for (std::int64_t s = 0; s < sequences.count(); ++s)
    for (std::int32_t const id : sequences[s])
      for (int shift = 0; shift < 32; shift += 8)
        h = (h ^ (static_cast<std::uint32_t>(id) >> shift & 0xFF)) * 0x100000001B3u;
  char text[17];
  std::snprintf(text, sizeof text, "%016llx", static_cast<unsigned long long>(h));
  return text;
}

RecordPart part_of(ConfigTree const& tree) {
  std::string const kind = tree.as_array()[0].as_string();
  return {kind == "all"     ? RecordPart::Kind::all
          : kind == "first" ? RecordPart::Kind::first
                            : RecordPart::Kind::rest,
          static_cast<int>(tree.as_array()[1].as_int())};
}

SequenceRequest request_for(fs::path const& text, std::int64_t block_size,
                            fs::path const& cache_folder) {
  SequenceRequest request;
  request.text = text;
  request.block_size = block_size;
  request.cache_folder = cache_folder;
  return request;
}

TEST(TextDataset, EqualHuggingFaces) {
  ScratchFiles cache;
  for (auto const& expected : cases().at("blocks").as_array()) {
    SCOPED_TRACE(expected.at("file").as_string() + " " + expected.at("part").dump() + " " +
                 expected.at("block_size").dump());
    auto request = request_for(vectors + "text/" + expected.at("file").as_string(),
                               expected.at("block_size").as_int(), cache.directory());
    request.part = part_of(expected.at("part"));
    request.line_breaks = expected.at("keep").as_bool() ? LineBreaks::keep : LineBreaks::drop;
    TokenSequences const sequences = build_or_open_sequences(request, tokenizer());
    ASSERT_EQ(sequences.count(), expected.at("count").as_int());
    EXPECT_EQ(sequences.length(), request.block_size);
    EXPECT_EQ(sequences.records(), expected.at("records").as_int());
    EXPECT_EQ(sequences.tokens(), expected.at("tokens").as_int());
    EXPECT_EQ(copy_of(sequences[0]), ids_of(expected.at("first")));
    EXPECT_EQ(copy_of(sequences[sequences.count() - 1]), ids_of(expected.at("last")));
    EXPECT_EQ(sum_of(sequences), expected.at("fnv").as_string());
  }
}

TEST(TextDataset, SplitBoundaryRoundsAsDatasets) {
  for (auto const& row : cases().at("boundaries").as_array())
    EXPECT_EQ(
        split_boundary(row.as_array()[0].as_int(), static_cast<int>(row.as_array()[1].as_int())),
        row.as_array()[2].as_int())
        << row.dump();
}

TEST(TextDataset, PartsMakeUpTheWhole) {
  ScratchFiles cache;
  auto request = request_for(vectors + "text/lines.txt", 8, cache.directory());
  std::int64_t const all = build_or_open_sequences(request, tokenizer()).tokens();
  request.part = {RecordPart::Kind::first, 30};
  std::int64_t const first = build_or_open_sequences(request, tokenizer()).tokens();
  request.part.kind = RecordPart::Kind::rest;
  EXPECT_EQ(first + build_or_open_sequences(request, tokenizer()).tokens(), all);
}

TEST(TextDataset, KeepFirstShortensTheViewOnly) {
  ScratchFiles cache;
  auto const request = request_for(vectors + "text/few.txt", 5, cache.directory());
  TokenSequences sequences = build_or_open_sequences(request, tokenizer());
  std::int64_t const all = sequences.count();
  sequences.keep_first(3);
  EXPECT_EQ(sequences.count(), 3);
  sequences.keep_first(all);
  EXPECT_EQ(sequences.count(), 3);
  EXPECT_EQ(open_sequences(request, tokenizer()).count(), all);
}

std::vector<std::string> files_in(fs::path const& folder) {
  std::vector<std::string> out;
  for (auto const& entry : fs::directory_iterator(folder)) out.push_back(entry.path().filename());
  return out;
}

TEST(SequenceCache, IsReusedAndFollowsTheText) {
  ScratchFiles folder;
  fs::path const text = folder.write("a.txt", "one two three four five six seven");
  auto const request = request_for(text, 4, folder.directory() / "cache" / "deeper");
  TokenSequences const first = build_or_open_sequences(request, tokenizer());
  auto const written = fs::last_write_time(first.file());
  EXPECT_EQ(build_or_open_sequences(request, tokenizer()).fingerprint(), first.fingerprint());
  EXPECT_EQ(fs::last_write_time(first.file()), written);

  folder.write("a.txt", "seven six five four three two one");  // same length, other text
  TokenSequences const second = build_or_open_sequences(request, tokenizer());
  EXPECT_NE(second.fingerprint(), first.fingerprint());
  EXPECT_EQ(second.file(), first.file());
  EXPECT_EQ(tokenizer().decode(first[0]).substr(0, 3), "one");  // the old mapping lives on
  EXPECT_EQ(tokenizer().decode(second[0]).substr(0, 3), "sev");
  EXPECT_EQ(open_sequences(request, tokenizer()).fingerprint(), second.fingerprint());
  EXPECT_EQ(files_in(folder.directory() / "cache" / "deeper").size(), 1u);
}

TEST(SequenceCache, OtherParametersHaveOtherFiles) {
  ScratchFiles folder;
  fs::path const text = folder.write("a.txt", std::string(200, 'x'));
  auto const base = request_for(text, 4, folder.directory());
  std::vector<fs::path> files = {cache_file(base, tokenizer()),
                                 cache_file(base, Tokenizer(vectors + "tokenizer/bigcode"))};
  auto other = base;
  other.block_size = 5;
  files.push_back(cache_file(other, tokenizer()));
  other = base;
  other.line_breaks = LineBreaks::drop;
  files.push_back(cache_file(other, tokenizer()));
  other = base;
  other.part = {RecordPart::Kind::first, 5};
  files.push_back(cache_file(other, tokenizer()));
  other.part.kind = RecordPart::Kind::rest;
  files.push_back(cache_file(other, tokenizer()));
  std::ranges::sort(files);
  EXPECT_EQ(std::ranges::adjacent_find(files), files.end());
}

void damage(fs::path const& file, std::size_t at) {
  std::fstream stream(file, std::ios::in | std::ios::out | std::ios::binary);
  stream.seekg(static_cast<std::streamoff>(at));
  char const byte = static_cast<char>(stream.get() ^ 0x40);
  stream.seekp(static_cast<std::streamoff>(at)).put(byte);
}

TEST(SequenceCache, DamageAnywhereIsFoundAndRepaired) {
  ScratchFiles folder;
  auto const request = request_for(folder.write("a.txt", "one two three four five six seven"), 4,
                                   folder.directory());
  TokenSequences const good = build_or_open_sequences(request, tokenizer());
  std::string const sum = sum_of(good);
  std::size_t const bytes = fs::file_size(good.file());
  for (std::size_t at = 0; at < bytes; at += 3) {
    damage(good.file(), at);
    EXPECT_EQ(sum_of(build_or_open_sequences(request, tokenizer())), sum) << at;
  }
  for (std::size_t size : {std::size_t{0}, std::size_t{50}, bytes - 4}) {
    fs::resize_file(good.file(), size);
    EXPECT_THROW(open_sequences(request, tokenizer()), tessera::DataError);
    EXPECT_EQ(sum_of(build_or_open_sequences(request, tokenizer())), sum);
  }
}

TEST(SequenceCache, BuildersMayRace) {
  ScratchFiles cache;
  auto const request = request_for(vectors + "text/lines.txt", 16, cache.directory());
  std::vector<std::string> sums(4);
  {
    std::vector<std::jthread> builders;
    for (auto& sum : sums)
      builders.emplace_back([&] {
        sum = sum_of(build_or_open_sequences(request, Tokenizer(vectors + "tokenizer/gpt2")));
      });
  }
  for (auto const& sum : sums) EXPECT_EQ(sum, sums[0]);
  EXPECT_EQ(files_in(cache.directory()).size(), 1u);
}

// ---- errors ----

template <class ErrorType>
std::string build_error(ScratchFiles const& folder, std::string const& name,
                        std::string const& text, std::int64_t block_size = 4) {
  auto const request =
      request_for(folder.write(name, text), block_size, folder.directory() / "cache");
  std::string const what =
      error_of<ErrorType>([&] { build_or_open_sequences(request, tokenizer()); });
  if (fs::exists(folder.directory() / "cache")) {
    EXPECT_THAT(files_in(folder.directory() / "cache"), IsEmpty());
  }
  return what;
}

TEST(TextErrors, AreNamed) {
  ScratchFiles folder;
  EXPECT_THAT(build_error<tessera::DataError>(folder, "short.txt", "ab\ncd", 1000),
              ::testing::AllOf(HasSubstr("short.txt has 2 records with 5 tokens"),
                               HasSubstr("block_size of at most 5")));
  EXPECT_THAT(build_error<tessera::DataError>(folder, "empty.txt", ""), HasSubstr("has 0 records"));
  EXPECT_THAT(build_error<tessera::ConfigError>(folder, "a.parquet", "PAR1"),
              HasSubstr("datasets.Dataset.from_parquet"));
  EXPECT_THAT(build_error<tessera::ConfigError>(folder, "a.dat", "x"),
              HasSubstr("rename the file"));
  EXPECT_THAT(build_error<tessera::ConfigError>(folder, "a.txt", "x", 1),
              HasSubstr("block_size is 1"));
  auto const missing = request_for(folder.directory() / "none.txt", 4, folder.directory());
  EXPECT_THAT(error_of<tessera::IoError>([&] { build_or_open_sequences(missing, tokenizer()); }),
              HasSubstr("none.txt: there is no such file"));
  EXPECT_THAT(error_of<tessera::IoError>([&] { open_sequences(missing, tokenizer()); }),
              HasSubstr("blocks_"));
  auto blocked = request_for(vectors + "text/few.txt", 4, folder.directory() / "a.txt" / "cache");
  EXPECT_THAT(error_of<tessera::IoError>([&] { build_or_open_sequences(blocked, tokenizer()); }),
              HasSubstr("cannot create the directory"));
}

TEST(TextErrors, JsonRecordsAreNamed) {
  ScratchFiles folder;
  auto const error = [&](std::string const& text) {
    return build_error<tessera::DataError>(folder, "a.jsonl", text);
  };
  EXPECT_THAT(error("{\"text\": \"a\"}\n{\"body\": \"b\"}"),
              HasSubstr("a.jsonl line 2, record 2 has no member 'text'"));
  EXPECT_THAT(error("{\"body\": \"a\"}\n{\"body\": \"b\", \"text\": \"c\"}"),
              HasSubstr("record 2 has a member 'text'"));
  EXPECT_THAT(error("{\"text\": \"a\"}\n{\"text\": null}"), HasSubstr("record 2: 'text' is null"));
  EXPECT_THAT(error("{\"text\": [\"a\", \"b\"]}"), HasSubstr("'text' is an array"));
  EXPECT_THAT(error("{\"text\": \"a\"}\nb"), HasSubstr("record 2 is not an object"));
  EXPECT_THAT(error("{\"text\": \"a\"}\n{\"text\": \"b"), HasSubstr("record 2 is cut short"));
  EXPECT_THAT(error("{\"text\" \"a\"}"), HasSubstr("record 1 is not valid JSON"));
  EXPECT_THAT(error("[{\"text\": \"a\"} {\"text\": \"b\"}]"),
              HasSubstr("comma is missing after record 1"));
  EXPECT_THAT(error("[{\"text\": \"a\"}"), HasSubstr("is cut short"));
  EXPECT_THAT(error("[{\"text\": \"a\"}] x"), HasSubstr("text follows the end of the array"));
}

TEST(TextErrors, DamagedGzipIsFound) {
  ScratchFiles folder;
  fs::copy(vectors + "text/few_packed.txt.gz", folder.directory() / "a.txt.gz");
  fs::resize_file(folder.directory() / "a.txt.gz", 150);
  auto const request =
      request_for(folder.directory() / "a.txt.gz", 4, folder.directory() / "cache");
  EXPECT_THAT(error_of<tessera::DataError>([&] { build_or_open_sequences(request, tokenizer()); }),
              HasSubstr("damaged or cut short"));
}

TEST(TextDataset, BytesThatAreNotUtf8AreReplaced) {
  ScratchFiles folder;
  auto const bad =
      request_for(folder.write("bad.txt", "caf\xE9 abc\xFF\n\xF0\x9F"), 4, folder.directory());
  auto const good =
      request_for(folder.write("good.txt", "caf\uFFFD abc\uFFFD\n\uFFFD"), 4, folder.directory());
  EXPECT_EQ(sum_of(build_or_open_sequences(bad, tokenizer())),
            sum_of(build_or_open_sequences(good, tokenizer())));
}

TEST(TextDataset, FilesAreOneDataSet) {
  ScratchFiles folder;
  std::ifstream few(vectors + "text/few.txt", std::ios::binary);
  std::string const lines(std::istreambuf_iterator<char>(few), {});
  std::size_t const middle = lines.find('\n', lines.size() / 2) + 1;
  folder.write("part_1.txt", lines.substr(0, middle));
  folder.write("part_2.txt", lines.substr(middle));
  auto const one = request_for(folder.write("all.txt", lines), 4, folder.directory());
  auto const expected = sum_of(build_or_open_sequences(one, tokenizer()));
  std::string const at = folder.directory().string();
  for (std::string const& named : {at + "/part_*.txt", at + "/part_1.txt," + at + "/part_2.txt"}) {
    auto request = request_for(named, 4, folder.directory());
    EXPECT_EQ(sum_of(build_or_open_sequences(request, tokenizer())), expected);
    request.part = {RecordPart::Kind::rest, 30};
    auto half = one;
    half.part = request.part;
    EXPECT_EQ(sum_of(build_or_open_sequences(request, tokenizer())),
              sum_of(build_or_open_sequences(half, tokenizer())));
  }
  folder.write("part_2.txt", "other text\n" + lines);
  EXPECT_NE(sum_of(build_or_open_sequences(request_for(at + "/part_*.txt", 4, at), tokenizer())),
            expected);
}

TEST(TextDataset, DataSetsAreMixedByWeight) {
  ScratchFiles folder;
  std::string const a = folder.write("a.txt", std::string(320, 'a')),
                    b = folder.write("b.txt", std::string(80, 'b'));
  auto request = request_for(a, 4, folder.directory());
  std::int64_t const count_a = build_or_open_sequences(request, tokenizer()).count();
  auto const id_a = copy_of(build_or_open_sequences(request, tokenizer())[0])[0];
  request.text = a + "," + b;
  request.mixture = "1,3";
  auto const mixed = build_or_open_sequences(request, tokenizer());
  EXPECT_EQ(mixed.count(), 4 * count_a);
  std::int64_t of_a = 0;
  for (std::int64_t i = 0; i < mixed.count(); ++i) of_a += mixed[i][0] == id_a;
  EXPECT_EQ(of_a, count_a);
  EXPECT_EQ(build_or_open_sequences(request, tokenizer()).fingerprint(), mixed.fingerprint());
  EXPECT_EQ(open_sequences(request, tokenizer()).count(), mixed.count());
  folder.write("b.txt", std::string(80, 'c'));
  EXPECT_NE(build_or_open_sequences(request, tokenizer()).fingerprint(), mixed.fingerprint());
  request.mixture = "1,3,2";
  EXPECT_THAT(
      error_of<tessera::ConfigError>([&] { build_or_open_sequences(request, tokenizer()); }),
      HasSubstr("names 2 data sets"));
}

TEST(TextDataset, ThreadsChangeNothing) {
  ScratchFiles folder;
  std::string text;
  for (int i = 0; i < 20'000; ++i) text += "line " + std::to_string(i * i) + " of the text\n";
  auto request = request_for(folder.write("a.txt", text), 16, folder.directory() / "one");
  auto const expected = build_or_open_sequences(request, tokenizer());
  request.cache_folder = folder.directory() / "four";
  request.threads = 4;
  auto const threaded = build_or_open_sequences(request, tokenizer());
  EXPECT_EQ(sum_of(threaded), sum_of(expected));
  EXPECT_EQ(threaded.tokens(), expected.tokens());
  EXPECT_EQ(threaded.records(), 20'000);
}

TEST(TextDataset, BrokenRecordsAreSkippedOnDemand) {
  ScratchFiles folder;
  std::string const good = "{\"text\": \"one two three four five six seven\"}\n";
  auto request =
      request_for(folder.write("a.jsonl", good + "{\"text\": 1}\n" + good), 4, folder.directory());
  EXPECT_THAT(error_of<tessera::DataError>([&] { build_or_open_sequences(request, tokenizer()); }),
              HasSubstr("a.jsonl line 2, record 2: 'text' is"));
  request.broken_records = BrokenRecords::skip;
  EXPECT_EQ(build_or_open_sequences(request, tokenizer()).records(), 2);
  request.broken_records = BrokenRecords::stop;  // the sequences without it are not taken for these
  EXPECT_THROW(build_or_open_sequences(request, tokenizer()), tessera::DataError);
}

TEST(TextDataset, TokenIdsOfLlmcAreCut) {
  ScratchFiles folder;
  std::vector<std::int32_t> header(256, 0);
  header[0] = 20240520, header[1] = 1, header[2] = 23;
  std::vector<std::uint16_t> ids(23);
  for (std::size_t i = 0; i < ids.size(); ++i) ids[i] = static_cast<std::uint16_t>(i + 3);
  fs::path const file = folder.directory() / "a.bin";
  std::ofstream(file, std::ios::binary)
      .write(reinterpret_cast<char const*>(header.data()), 1024)
      .write(reinterpret_cast<char const*>(ids.data()), 46);
  auto request = request_for(file, 4, folder.directory());
  auto const all = build_or_open_sequences(request, tokenizer());
  EXPECT_EQ(all.count(), 5);
  EXPECT_EQ(all.tokens(), 23);
  EXPECT_THAT(copy_of(all[4]), ElementsAre(19, 20, 21, 22));
  request.part = {RecordPart::Kind::first, 40};
  EXPECT_EQ(build_or_open_sequences(request, tokenizer()).count(), 2);
  request.part.kind = RecordPart::Kind::rest;
  EXPECT_THAT(copy_of(build_or_open_sequences(request, tokenizer())[0]),
              ElementsAre(11, 12, 13, 14));
  auto const twice = build_or_open_sequences(
      request_for(file.string() + "," + file.string(), 4, folder.directory()), tokenizer());
  EXPECT_EQ(twice.count(), 11);
  EXPECT_THAT(copy_of(twice[5]), ElementsAre(23, 24, 25, 3));
  request.text = file.string() + "," + folder.write("b.txt", "text");
  EXPECT_THAT(
      error_of<tessera::ConfigError>([&] { build_or_open_sequences(request, tokenizer()); }),
      HasSubstr("b.txt together with"));
}

TEST(TextDataset, IdsBeyondTheModelAreRefused) {
  ScratchFiles folder;
  auto const request =
      request_for(folder.write("a.txt", "ab<|endoftext|>c"), 4, folder.directory());
  TokenSequences const sequences = build_or_open_sequences(request, tokenizer());
  EXPECT_EQ(sequences.max_id(), 640);
  check_vocabulary(sequences, tokenizer(), 641);
  EXPECT_THAT(error_of<tessera::DataError>([&] { check_vocabulary(sequences, tokenizer(), 640); }),
              ::testing::AllOf(HasSubstr("token 640 ('<|endoftext|>')"), HasSubstr("below 640"),
                               HasSubstr("641 tokens")));
}

TEST(BlockSize, IsChosenAsRunClmDoes) {
  constexpr std::int64_t no_limit = std::numeric_limits<std::int64_t>::max();
  auto const size = [](auto... args) { return choose_block_size(args...).block_size; };
  EXPECT_EQ(size(std::nullopt, 1024, 1024), 1024);
  EXPECT_EQ(size(std::nullopt, 512, 1024), 512);
  EXPECT_EQ(size(std::nullopt, 2048, 4096), 2048);
  EXPECT_EQ(size(std::nullopt, 2048, 256), 256);
  EXPECT_EQ(size(std::nullopt, no_limit, 4096), 1024);
  EXPECT_EQ(size(std::nullopt, no_limit, -1), 1024);
  EXPECT_EQ(size(128, 1024, 64), 128);
  EXPECT_EQ(size(4096, 1024, 8192), 1024);
  EXPECT_EQ(choose_block_size(128, 1024).warning, "");
  EXPECT_THAT(choose_block_size(4096, 1024).warning, HasSubstr("using block_size=1024"));
  EXPECT_THAT(choose_block_size(std::nullopt, no_limit, 256).warning,
              HasSubstr("using block_size=256"));
  EXPECT_THROW(choose_block_size(1, 1024), tessera::ConfigError);
}

}  // namespace
