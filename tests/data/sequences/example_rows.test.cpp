#include "sequences/example_rows.hpp"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <fstream>

#include "error_of.hpp"
#include "scratch_files.hpp"
#include "tessera/core/error.hpp"
#include "tessera/data/sampling/batch_loader.hpp"

namespace tessera::data {
namespace {

using ::testing::HasSubstr;
using Ids = std::vector<std::int32_t>;

class ExampleRows : public ::testing::Test {
 protected:
  ExampleRows() {
    request_.cache_folder = folder_.directory() / "cache";
    request_.examples = ExampleOptions{};
    request_.examples->eos_token = "!";
  }
  void write(std::string const& name, std::string const& text) {
    request_.text = folder_.directory() / name;
    std::ofstream(request_.text) << text;
  }
  TokenSequences sequences() { return build_or_open_sequences(request_, tokenizer_); }
  std::string text_of(TokenSequences const& all, std::int64_t i) {
    return detail::marked_text(tokenizer_, {all[i].begin(), all[i].end()}, "[", "]");
  }
  ScratchFiles folder_;
  Tokenizer tokenizer_{TESSERA_TEST_DATA "/data/vectors/tokenizer/narrow"};
  SequenceRequest request_;
};

TEST_F(ExampleRows, ReadJsonLinesCsvAndLines) {
  write("a.jsonl", R"({"prompt": "a", "completion": "b"})"
                   "\n"
                   R"({"prompt": "cd", "completion": "b"})"
                   "\n");
  auto const json = sequences();
  ASSERT_EQ(json.count(), 2);
  EXPECT_EQ(text_of(json, 1), "cd[b!]");
  write("a.csv", "prompt,completion\na,b\ncd,b\n");
  EXPECT_EQ(text_of(sequences(), 1), "cd[b!]");
  write("a.txt", "ab\ncd\n");
  EXPECT_EQ(text_of(sequences(), 1), "[cd!]");
  auto const shown = show_examples(request_, tokenizer_, 1);
  EXPECT_EQ(shown.form, "text, loss on all tokens");
  ASSERT_EQ(shown.examples.size(), 1);
  EXPECT_EQ(shown.examples[0].text, "[[ab!]]");
}

TEST_F(ExampleRows, NameOrSkipBrokenRecords) {
  write("a.jsonl", R"({"prompt": "a", "completion": "b"})"
                   "\n"
                   R"({"prompt": "cd", "completion": 5})"
                   "\n");
  EXPECT_THAT(error_of<DataError>([&] { sequences(); }),
              HasSubstr("a.jsonl line 2, record 2: column 'completion' is"));
  request_.broken_records = BrokenRecords::skip;
  EXPECT_EQ(sequences().count(), 1);
}

TEST_F(ExampleRows, PackedDependOnTheThreadsInNothing) {
  std::string text;
  for (int i = 0; i < 2300; ++i)
    text += R"({"text": ")" + std::string(static_cast<std::size_t>(1 + i * 7 % 11), 'a') + "\"}\n";
  write("a.jsonl", text);
  request_.examples->max_length = 16;
  request_.examples->packing = Packing::bfd;
  auto const one = sequences();
  std::filesystem::remove(one.file());
  request_.threads = 3;
  auto const three = sequences();
  ASSERT_EQ(one.count(), three.count());
  for (std::int64_t i = 0; i < one.count(); ++i)
    ASSERT_TRUE(std::ranges::equal(one[i], three[i])) << i;
}

TEST_F(ExampleRows, BecomePaddedOrFlatBatches) {
  write("a.jsonl", R"({"prompt": "a", "completion": "bc"})"
                   "\n"
                   R"({"prompt": "d", "completion": ""})"
                   "\n");
  auto all = sequences();
  auto const id = [&](char const* token) { return tokenizer_.find(token); };
  std::int32_t const a = id("a"), b = id("b"), c = id("c"), d = id("d"), end = id("!");
  auto const padded = read_batch(all, {0, 1});
  EXPECT_EQ(padded.rows, 2);
  EXPECT_EQ(padded.sequence, 4);
  EXPECT_EQ(padded.tokens, 6);
  EXPECT_EQ(padded.ids, (Ids{a, b, c, end, d, end, 0, 0}));
  EXPECT_EQ(padded.labels, (Ids{-1, b, c, end, -1, end, -1, -1}));
  EXPECT_EQ(padded.documents, (Ids{0, 0, 0, 0, 0, 0, 2, 2}));
  all.set_layout({.flat = true, .multiple_of = 4});
  auto const flat = read_batch(all, {1, 0});
  EXPECT_EQ(flat.rows, 1);
  EXPECT_EQ(flat.sequence, 8);
  EXPECT_EQ(flat.ids, (Ids{d, end, a, b, c, end, 0, 0}));
  EXPECT_EQ(flat.labels, (Ids{-1, end, -1, b, c, end, -1, -1}));
  EXPECT_EQ(flat.documents, (Ids{0, 0, 2, 2, 2, 2, 6, 6}));
}

TEST_F(ExampleRows, OfPreferencesAreTwoPerSample) {
  write("a.jsonl", R"({"prompt": "a", "chosen": "b", "rejected": "cd"})"
                   "\n"
                   R"({"prompt": "d", "chosen": "c", "rejected": ""})"
                   "\n");
  request_.examples->preferences = true;
  auto all = sequences();
  EXPECT_EQ(all.count(), 4);
  all.set_layout({.per_sample = 2});
  EXPECT_EQ(all.count(), 2);
  auto const id = [&](char const* token) { return tokenizer_.find(token); };
  std::int32_t const a = id("a"), b = id("b"), c = id("c"), d = id("d"), end = id("!");
  auto const both = read_batch(all, {1, 0});
  EXPECT_EQ(both.samples, 2);
  EXPECT_EQ(both.rows, 4);
  EXPECT_EQ(both.tokens, 12);
  EXPECT_EQ(both.ids, (Ids{d, c, end, 0, d, end, 0, 0, a, b, end, 0, a, c, d, end}));
  EXPECT_EQ(both.labels, (Ids{-1, c, end, -1, -1, end, -1, -1, -1, b, end, -1, -1, c, d, end}));
  EXPECT_EQ(both.documents[4], 0) << "the rejected sequence has a row of its own";
  all.keep_first(1);
  EXPECT_EQ(all.count(), 1);
}

}  // namespace
}  // namespace tessera::data
