/// Which files make a tokenizer, and what they set. What their contents mean is tested through
/// Tokenizer.
#include "tokenizer/tokenizer_file.hpp"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

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

TEST_F(TokenizerFiles, ConfigFilesAreMergedTheNewerFirst) {
  folder_.write("tokenizer.json", tokenizer_json);
  folder_.write("tokenizer_config.json", R"({"model_max_length": 77, "eos_token": "<e>"})");
  folder_.write("special_tokens_map.json", R"({"eos_token": "a", "bos_token": "<b>"})");
  TokenizerFile const file = read();
  EXPECT_EQ(file.files.size(), 3u);
  EXPECT_EQ(file.model_max_length, 77);
  EXPECT_EQ(file.eos_id, 2);
  EXPECT_EQ(file.bos_id, 3);  // a token that only the older file has
  EXPECT_EQ(file.added.size(), 2u);
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
