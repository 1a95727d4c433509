#include "tessera/data/sequences/tokenizer_training.hpp"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "error_of.hpp"
#include "scratch_files.hpp"
#include "tessera/core/config_tree.hpp"
#include "tessera/core/error.hpp"
#include "tessera/data/tokenizer/tokenizer.hpp"

namespace tessera::data {
namespace {

using ::testing::HasSubstr;

std::string const vectors = TESSERA_TEST_DATA "/data/vectors/";

std::vector<std::string> tokens_by_id(ConfigTree const& vocabulary) {
  std::vector<std::string> out(vocabulary.size());
  for (auto const& [token, id] : vocabulary.as_object())
    out.at(static_cast<std::size_t>(id.as_int())) = token;
  return out;
}

TEST(TokenizerTraining, EqualsHuggingFace) {
  ConfigTree const cases = ConfigTree::read(vectors + "training.json");
  for (auto const& [like, expected] : cases.as_object()) {
    SCOPED_TRACE(like);
    ScratchFiles const folder;
    TokenizerTrainingRequest const request{
        vectors + "text/lines.txt", vectors + "tokenizer/" + like, folder.directory() / "new",
        expected.at("vocab_size").as_int(), expected.at("min_frequency").as_int()};
    EXPECT_EQ(train_tokenizer(request), static_cast<std::int64_t>(expected.at("tokens").size()));
    ConfigTree const made = ConfigTree::read(folder.directory() / "new" / "tokenizer.json");
    std::vector<std::string> tokens;
    for (auto const& token : expected.at("tokens").as_array()) tokens.push_back(token.as_string());
    EXPECT_EQ(tokens_by_id(made.at("model").at("vocab")), tokens);
    EXPECT_EQ(made.at("model").at("merges"), expected.at("merges"));
    for (auto const& [token, ids] : expected.at("template").as_object())
      EXPECT_THAT(made.at("post_processor").dump(),
                  HasSubstr("\"ids\":" + ids.dump() + ",\"tokens\":[\"" + token + "\"]"));
    Tokenizer const tokenizer(folder.directory() / "new");  // it is a tokenizer again
    EXPECT_EQ(tokenizer.vocabulary_size(), static_cast<std::int64_t>(tokens.size()));
  }
}

TEST(TokenizerTraining, WithoutAnotherTokenizerItIsThatOfGpt2) {
  ScratchFiles const folder;
  TokenizerTrainingRequest const request{vectors + "text/lines.txt", "", folder.directory(), 400,
                                         0};
  EXPECT_EQ(train_tokenizer(request), 400);
  Tokenizer const tokenizer(folder.directory());
  EXPECT_EQ(tokenizer.eos_id(), 0);
  EXPECT_EQ(tokenizer.model_max_length(), 1024);
  std::string const text = "the words of a text <|endoftext|>\n";
  EXPECT_EQ(tokenizer.decode(tokenizer.encode(text)), text);
  EXPECT_LT(tokenizer.encode(text).size(), text.size() - 12);
}

TEST(TokenizerTraining, ErrorsAreNamed) {
  ScratchFiles const folder;
  TokenizerTrainingRequest request{folder.write("empty.txt", ""), "", folder.directory(), 300, 0};
  EXPECT_THAT(error_of<DataError>([&] { train_tokenizer(request); }), HasSubstr("has no words"));
  request.text = folder.write("a.txt", "some text");
  request.like = folder.directory() / "none";
  EXPECT_THAT(error_of<IoError>([&] { train_tokenizer(request); }), HasSubstr("no tokenizer at"));
  request.like = TESSERA_TEST_DATA "/data/vectors/tokenizer_models/t5";
  EXPECT_THAT(error_of<ConfigError>([&] { train_tokenizer(request); }),
              HasSubstr("is Unigram; Tessera trains BPE only"));
  request.like.clear();
  request.vocabulary_size = 257;
  EXPECT_THAT(error_of<ConfigError>([&] { train_tokenizer(request); }),
              HasSubstr("the alphabet need 257 already"));
}

}  // namespace
}  // namespace tessera::data
