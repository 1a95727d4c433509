#include "tokenizer/tokenizer_file.hpp"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "error_of.hpp"
#include "tessera/core/error.hpp"

namespace tessera::data::detail {
namespace {

using ::testing::ElementsAre;
using ::testing::HasSubstr;

WordModel read(std::string const& json) {
  return read_word_model(ConfigTree::parse(json, "test"), Symbols::characters, "model");
}

std::vector<std::int32_t> encode(std::string const& json, std::string_view word) {
  std::vector<std::int32_t> out;
  read(json).encoder->encode(word, out);
  return out;
}

TEST(WordModel, TheTypeDecides) {
  EXPECT_THAT(
      encode(R"({"type": "Unigram", "unk_id": 0, "vocab": [["?", 0], ["a", -1], ["aa", -1]]})",
             "aaa"),
      ElementsAre(1, 2));
  EXPECT_THAT(encode(R"({"type": "WordPiece", "vocab": {"[UNK]": 0, "a": 1, "##a": 2}})", "aaa"),
              ElementsAre(1, 2, 2));
  EXPECT_THAT(encode(R"({"type": "BPE", "vocab": {"a": 0, "aa": 1}, "merges": ["a a"]})", "aaa"),
              ElementsAre(1, 0));
}

TEST(WordModel, OldFilesLeaveTheTypeOut) {
  EXPECT_THAT(encode(R"({"vocab": {"a": 0, "aa": 1}, "merges": ["a a"]})", "aaa"),
              ElementsAre(1, 0));
  EXPECT_THAT(
      encode(R"({"continuing_subword_prefix": "@", "unk_token": "u", "vocab": {"u": 0, "a": 1,
                         "@a": 2}})",
             "aa"),
      ElementsAre(1, 2));
  EXPECT_THAT(encode(R"({"unk_id": 0, "vocab": [["?", 0]]})", "a"), ElementsAre(0));
}

TEST(WordModel, ErrorsNameTheField) {
  auto const error = [](std::string const& json) {
    return error_of<DataError>([&] { read(json); });
  };
  EXPECT_THAT(error_of<ConfigError>([] { read(R"({"type": "WordLevel"})"); }),
              HasSubstr("model.type is 'WordLevel'"));
  EXPECT_THAT(error(R"({"type": "Unigram", "vocab": []})"), HasSubstr("model.vocab has 0 tokens"));
  EXPECT_THAT(error(R"({"type": "Unigram", "vocab": [["a", 0], ["b"]]})"),
              HasSubstr("model.vocab[1] is"));
  EXPECT_THAT(error(R"({"type": "Unigram", "vocab": [["a", 0]], "unk_id": 1})"),
              HasSubstr("model.unk_id is 1"));
  EXPECT_THAT(error(R"({"type": "WordPiece", "vocab": {"a": 0}})"),
              HasSubstr("model.unk_token is '[UNK]'"));
  EXPECT_THAT(error(R"({"type": "WordPiece", "vocab": {"a": 0, "b": 0}, "unk_token": "a"})"),
              HasSubstr("has the id 0, which another token has"));
}

}  // namespace
}  // namespace tessera::data::detail
