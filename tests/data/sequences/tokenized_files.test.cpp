#include "tessera/data/sequences/tokenized_files.hpp"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "error_of.hpp"
#include "scratch_files.hpp"
#include "sequences/sequence_file.hpp"
#include "tessera/core/config_tree.hpp"
#include "tessera/core/error.hpp"

namespace tessera::data {
namespace {

using ::testing::HasSubstr;

std::string const vectors = TESSERA_TEST_DATA "/data/vectors/";

std::vector<std::int32_t> ids_of(std::filesystem::path const& file) {
  detail::TokenFile const tokens(file);
  std::vector<std::int32_t> out(static_cast<std::size_t>(tokens.tokens()));
  tokens.read(0, out);
  return out;
}

TEST(TokenizedFiles, HoldTheIdsOfEachRecord) {
  ScratchFiles const folder;
  Tokenizer const tokenizer(vectors + "tokenizer/gpt2");
  TokenizeRequest request;
  request.text = vectors + "text/records.jsonl";
  request.output = folder.directory() / "out.bin";
  std::int64_t reports = 0;
  auto const done = tokenize_files(request, tokenizer, [&](auto const&) { ++reports; });
  EXPECT_EQ(done.records, 1200);
  EXPECT_EQ(done.bytes, done.total_bytes);
  EXPECT_EQ(reports, 2);
  std::vector<std::int32_t> const ids = ids_of(request.output);
  EXPECT_EQ(std::ssize(ids), done.tokens);
  EXPECT_EQ(detail::TokenFile(request.output).documents(), 1200);
  std::vector<std::int32_t> expected;
  std::ifstream records(request.text);
  for (std::string line; std::getline(records, line);)
    tokenizer.encode(ConfigTree::parse(line, "record").at("text").as_string(), expected);
  EXPECT_EQ(ids, expected);
  request.threads = 3;
  request.append_eos = true;
  EXPECT_EQ(tokenize_files(request, tokenizer, [](auto const&) {}).tokens, done.tokens + 1200);
  EXPECT_EQ(ids_of(request.output).back(), tokenizer.eos_id());
}

TEST(TokenizedFiles, TrainAsTheTextDoesWhereNothingIsCutOff) {
  ScratchFiles const folder;
  Tokenizer const tokenizer(vectors + "tokenizer/gpt2");
  TokenizeRequest request;
  request.text = vectors + "text/few.txt";
  request.output = folder.directory() / "few.bin";
  tokenize_files(request, tokenizer, [](auto const&) {});
  SequenceRequest sequences;
  sequences.block_size = 8;
  sequences.cache_folder = folder.directory() / "cache";
  sequences.text = request.text;
  auto const of_text = build_or_open_sequences(sequences, tokenizer);
  sequences.text = request.output;
  auto const of_ids = build_or_open_sequences(sequences, tokenizer);
  ASSERT_EQ(of_ids.count(), of_text.count());
  for (std::int64_t i = 0; i < of_ids.count(); ++i)
    EXPECT_TRUE(std::ranges::equal(of_ids[i], of_text[i])) << i;
}

TEST(TokenizedFiles, ErrorsLeaveNoFile) {
  ScratchFiles const folder;
  Tokenizer const tokenizer(vectors + "tokenizer/gpt2");
  TokenizeRequest request;
  request.text = folder.write("a.jsonl", "{\"text\": \"a\"}\n{\"text\": 1}\n");
  request.output = folder.directory() / "out.bin";
  EXPECT_THAT(error_of<DataError>([&] { tokenize_files(request, tokenizer, [](auto const&) {}); }),
              HasSubstr("a.jsonl line 2"));
  EXPECT_FALSE(std::filesystem::exists(request.output));
  EXPECT_EQ(std::distance(std::filesystem::directory_iterator(folder.directory()), {}), 1);
  request.output = folder.directory() / "out.ids";
  EXPECT_THAT(
      error_of<ConfigError>([&] { tokenize_files(request, tokenizer, [](auto const&) {}); }),
      HasSubstr("does not end in .bin"));
}

}  // namespace
}  // namespace tessera::data
