#include "tokenizer/bpe.hpp"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "error_of.hpp"

namespace tessera::data::detail {
namespace {

using ::testing::HasSubstr;

ConfigTree parse(std::string const& json) { return ConfigTree::parse(json, "test"); }

ConfigTree const small = parse(R"({"type": "BPE",
  "vocab": {"a": 0, "b": 1, "c": 2, "ab": 3, "abc": 4, "\u0120a": 5, "\u0120": 6},
  "merges": ["a b", ["ab", "c"], "\u0120 a"]})");

template <class ErrorType>
std::string model_error(ConfigTree const& model) {
  return error_of<ErrorType>([&] { read_bpe_model(model, Symbols::bytes, "model"); });
}

TEST(BpeModel, MergesBecomeIdsInTheirOrder) {
  BpeModel const model = read_bpe_model(small, Symbols::bytes, "model");
  ASSERT_EQ(model.tables.merges.size(), 3u);
  EXPECT_EQ(model.tables.merges[1].left, 3);
  EXPECT_EQ(model.tables.merges[1].right, 2);
  EXPECT_EQ(model.tables.merges[1].result, 4);
  EXPECT_EQ(model.vocabulary.at("abc"), 4);
  EXPECT_EQ(model.tables.byte_ids[static_cast<unsigned>('b')], 1);
  EXPECT_EQ(model.tables.byte_ids[static_cast<unsigned>(' ')], 6);  // U+0120 is the blank's letter
  EXPECT_EQ(model.tables.byte_ids[static_cast<unsigned>('z')], -1);
  EXPECT_TRUE(model.tables.vocabulary_words.empty());
}

TEST(BpeModel, UnknownTokensAndIgnoreMerges) {
  ConfigTree tree = small;
  tree.set("unk_token", "c").set("fuse_unk", true).set("ignore_merges", true);
  BpeModel const model = read_bpe_model(tree, Symbols::bytes, "model");
  EXPECT_EQ(model.tables.unknown_id, 2);
  EXPECT_TRUE(model.tables.fuse_unknown);
  EXPECT_EQ(model.tables.vocabulary_words.at(" a"), 5);
}

TEST(BpeModel, TwoFilesGiveTheSameModel) {
  BpeModel const model = read_bpe_files(
      {small.at("vocab"), "vocab.json", "#version: 0.2\na b\r\nab c\n\n\u0120 a\n", "merges.txt"});
  EXPECT_EQ(model.vocabulary, read_bpe_model(small, Symbols::bytes, "model").vocabulary);
  ASSERT_EQ(model.tables.merges.size(), 3u);
  EXPECT_EQ(model.tables.merges[2].result, 5);
}

TEST(BpeModel, ErrorsNameTheField) {
  auto const with = [](std::string const& key, ConfigTree value) {
    ConfigTree tree = small;
    tree.set(key, std::move(value));
    return tree;
  };
  EXPECT_THAT(model_error<ConfigError>(with("dropout", 0.1)), HasSubstr("model.dropout is 0.1"));
  EXPECT_THAT(model_error<ConfigError>(with("end_of_word_suffix", "</w>")),
              HasSubstr("end_of_word_suffix is '</w>'"));
  EXPECT_THAT(model_error<ConfigError>(with("byte_fallback", true)),
              HasSubstr("byte_fallback is true and "));
  EXPECT_THAT(model_error<DataError>(with("vocab", parse(R"({"a": 0, "b": 0})"))),
              HasSubstr("has the id 0, which another token has"));
  EXPECT_THAT(model_error<DataError>(with("merges", parse(R"(["a z"])"))),
              HasSubstr("merges[0] names 'z', which is not"));
  EXPECT_THAT(model_error<DataError>(with("merges", parse(R"(["a b c"])"))),
              HasSubstr("two tokens"));
  EXPECT_THAT(model_error<DataError>(with("unk_token", "zz")), HasSubstr("unk_token is 'zz'"));
}

TEST(BpeModel, TokenIdsAreBounded) {
  EXPECT_TRUE(is_token_id(ConfigTree(max_token_id)));
  EXPECT_FALSE(is_token_id(ConfigTree(max_token_id + 1)));
  EXPECT_FALSE(is_token_id(ConfigTree(-1)));
  EXPECT_FALSE(is_token_id(ConfigTree("1")));
}

}  // namespace
}  // namespace tessera::data::detail
