/// Which files make a tokenizer, and what they set. What their contents mean is tested through
/// Tokenizer.
#include "tokenizer/tokenizer_file.hpp"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <map>
#include <utility>

#include "scratch_files.hpp"
#include "tessera/core/error.hpp"

namespace tessera::data::detail {
namespace {

std::string const tokenizer_json =
    R"({"model": {"type": "BPE", "vocab": {"a": 0, "b": 1}, "merges": []},
  "pre_tokenizer": {"type": "ByteLevel"}, "added_tokens": [{"id": 2, "content": "<e>", "special": true}]})";

class TokenizerFiles : public ::testing::Test {
 protected:
  TokenizerFile read() { return read_tokenizer_file(folder_.directory()); }
  ScratchFiles folder_;
};

/// transformers 5.24: special_tokens_map.json wins unless tokenizer_config.json is of the form that
/// replaced it.
TEST_F(TokenizerFiles, ConfigFilesAreMerged) {
  folder_.write("tokenizer.json", tokenizer_json);
  folder_.write("tokenizer_config.json",
                R"({"model_max_length": 77, "eos_token": "<e>", "added_tokens_decoder": {}})");
  folder_.write("special_tokens_map.json", R"({"eos_token": "a", "bos_token": "<b>"})");
  TokenizerFile const file = read();
  EXPECT_EQ(file.files.size(), 2u);
  EXPECT_EQ(file.model_max_length, 77);
  EXPECT_EQ(file.eos_id, 2);
  EXPECT_EQ(file.added.size(), 1u);
  folder_.write("tokenizer_config.json", R"({"model_max_length": 77, "eos_token": "<e>"})");
  TokenizerFile const older = read();
  EXPECT_EQ(older.files.size(), 3u);
  EXPECT_EQ(older.eos_id, 0);
  EXPECT_EQ(older.bos_id, 3);  // a token that only the older file has
}

/// The ids of AutoTokenizer of transformers 5.24 for these files, with "<|endoftext|>" where it has
/// given one.
TEST_F(TokenizerFiles, AddedTokensOfTheOlderFormHaveTheirIds) {
  folder_.write("vocab.json", R"({"a": 0, "b": 1, "ab": 2})");
  folder_.write("merges.txt", "#version: 0.2\na b\n");
  folder_.write("added_tokens.json", R"({"<extra>": 3, "<plain>": 4, "<sep>": 5})");
  auto const ids_of = [](TokenizerFile const& file) {
    std::map<std::string, std::pair<std::int32_t, bool>> ids;  // with `special`
    for (auto const& token : file.added) ids[token.content] = {token.id, token.special};
    return ids;
  };
  using Ids = std::map<std::string, std::pair<std::int32_t, bool>>;
  TokenizerFile file = read();
  EXPECT_EQ(ids_of(file), (Ids{{"<extra>", {3, false}},
                               {"<plain>", {4, false}},
                               {"<sep>", {5, false}},
                               {"<|endoftext|>", {6, true}}}));
  EXPECT_EQ(file.eos_id, 6);
  EXPECT_EQ(file.files.size(), 3u);
  folder_.write("special_tokens_map.json", R"({"sep_token": "<sep>", "eos_token": "<extra>"})");
  file = read();
  EXPECT_EQ(ids_of(file), (Ids{{"<extra>", {3, true}},
                               {"<plain>", {4, false}},
                               {"<sep>", {5, true}},
                               {"<|endoftext|>", {6, true}}}));
  EXPECT_EQ(file.eos_id, 3);
  folder_.write("tokenizer_config.json", R"({"eos_token": "<plain>",
      "added_tokens_decoder": {"3": {"content": "<plain>", "special": true}}})");
  file = read();
  EXPECT_EQ(file.eos_id, 3) << "added_tokens.json is not read then";
  EXPECT_EQ(ids_of(file).count("<extra>"), 0u);
}

TEST_F(TokenizerFiles, AddedTokensThatCannotBeReadAreNamed) {
  folder_.write("tokenizer.json", tokenizer_json);
  auto const refusal = [&](char const* text) -> std::string {
    folder_.write("added_tokens.json", text);
    try {
      read();
    } catch (DataError const& e) {
      return e.what();
    }
    return "nothing was thrown";
  };
  using ::testing::HasSubstr;
  EXPECT_THAT(refusal(R"(["<x>"])"), HasSubstr("added_tokens.json holds an array"));
  EXPECT_THAT(refusal(R"({"<x>": "3"})"), HasSubstr("the id of '<x>' is \"3\""));
  EXPECT_THAT(refusal(R"({"<x>": 3, "<y>": 3})"), HasSubstr("which another token has, too"));
  EXPECT_THAT(refusal(R"({"<e>": 2, "<x>": 3})"), HasSubstr("nothing was thrown"));
}

TEST_F(TokenizerFiles, AVocabularyInTextIsNamed) {
  folder_.write("vocab.txt", "[PAD]\n[UNK]\n");
  try {
    read();
    FAIL() << "nothing was thrown";
  } catch (ConfigError const& e) {
    EXPECT_THAT(e.what(), ::testing::HasSubstr("has a tokenizer in vocab.txt"));
    EXPECT_THAT(e.what(), ::testing::HasSubstr("save_pretrained"));
  }
}

TEST_F(TokenizerFiles, TheFingerprintDependsOnEveryFile) {
  folder_.write("tokenizer.json", tokenizer_json);
  std::uint64_t const first = read().fingerprint;
  EXPECT_EQ(read().fingerprint, first);
  folder_.write("tokenizer_config.json", R"({"model_max_length": 77})");
  std::uint64_t const second = read().fingerprint;
  EXPECT_NE(second, first);
  folder_.write("tokenizer_config.json", R"({"model_max_length": 78})");
  EXPECT_NE(read().fingerprint, second);
}

TEST_F(TokenizerFiles, VocabularyAndMergesAreTheOlderForm) {
  folder_.write("vocab.json", R"({"a": 0, "b": 1, "ab": 2, "<|endoftext|>": 3})");
  folder_.write("merges.txt", "#version: 0.2\na b\n");
  folder_.write("tokenizer_config.json", R"({"add_bos_token": true})");
  TokenizerFile const file = read();
  std::vector<std::int32_t> ids;
  file.model.encoder->encode("ab", ids);
  EXPECT_THAT(ids, ::testing::ElementsAre(2));
  EXPECT_EQ(file.bos_id, 3);
  EXPECT_THAT(file.prefix_ids, ::testing::ElementsAre(3));
  EXPECT_EQ(file.pre_tokenizer.rules.at(0).prefix, Prefix::never);
}

TEST_F(TokenizerFiles, AFolderWithoutATokenizerIsAnIoError) {
  EXPECT_THROW(read(), IoError);
  folder_.write("vocab.json", "{}");
  EXPECT_THROW(read(), IoError);  // without merges.txt
}

}  // namespace
}  // namespace tessera::data::detail
