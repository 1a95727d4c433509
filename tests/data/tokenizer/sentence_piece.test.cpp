/// Oracle: Hugging Face's slow LlamaTokenizer and T5Tokenizer (tests/oracles/sentence_piece.py).
#include "tokenizer/sentence_piece.hpp"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "error_of.hpp"
#include "scratch_files.hpp"
#include "tessera/core/config_tree.hpp"
#include "tessera/core/error.hpp"
#include "tessera/data/tokenizer/tokenizer.hpp"

namespace tessera::data::detail {
namespace {

using ::testing::HasSubstr;

std::string const vectors = TESSERA_TEST_DATA "/data/vectors/sentence_piece/";

#ifdef TESSERA_HAVE_SENTENCEPIECE

class SentencePieceModel : public ::testing::TestWithParam<char const*> {};

TEST_P(SentencePieceModel, EqualsTheSlowTokenizer) {
  Tokenizer const tokenizer(vectors + GetParam());
  ConfigTree const cases = ConfigTree::read(vectors + "cases.json");
  auto const& texts = cases.at("texts").as_array();
  auto const& expected = cases.at("ids").at(GetParam()).as_array();
  for (int pass = 0; pass < 2; ++pass)
    for (std::size_t i = 0; i < texts.size(); ++i) {
      std::vector<std::int32_t> ids;
      for (auto const& id : expected[i].as_array())
        ids.push_back(static_cast<std::int32_t>(id.as_int()));
      EXPECT_EQ(tokenizer.encode(texts[i].as_string()), ids) << i << ": " << texts[i].dump();
    }
  EXPECT_EQ(tokenizer.vocabulary_size(), cases.at("facts").at(GetParam()).at("size").as_int());
  EXPECT_EQ(tokenizer.eos_id(), cases.at("facts").at(GetParam()).at("eos_id").as_int());
}
INSTANTIATE_TEST_SUITE_P(Kinds, SentencePieceModel,
                         ::testing::Values("llama_legacy", "llama_new", "llama_bare", "t5"),
                         [](auto const& info) { return info.param; });

TEST(SentencePiece, DecodesWhatItEncoded) {
  for (char const* kind : {"llama_legacy", "llama_new", "llama_bare"}) {
    Tokenizer const tokenizer(vectors + kind);
    for (std::string const text : {"a b", "the  dog's\u3042\u00E9 1", " x", "\U0001F642"})
      EXPECT_EQ(tokenizer.decode(tokenizer.encode(text), Tokenizer::SpecialTokens::skip), text)
          << kind;
  }
}

TEST(SentencePiece, OtherFilesAndClassesAreRefused) {
  ScratchFiles folder;
  folder.write("tokenizer.model", "IQ== 0\nIg== 1\n");
  auto const error = [&] { Tokenizer const tokenizer(folder.directory()); };
  EXPECT_THAT(error_of<DataError>(error), HasSubstr("use its tokenizer.json"));
  folder.write("tokenizer_config.json", R"({"tokenizer_class": "XLMRobertaTokenizer"})");
  EXPECT_THAT(error_of<ConfigError>(error), HasSubstr("tokenizer_class is XLMRobertaTokenizer"));
}

#else

TEST(SentencePiece, WithoutTheLibraryTheMessageNamesTheWayOut) {
  EXPECT_THAT(error_of<ConfigError>([] { Tokenizer const tokenizer(vectors + "t5"); }),
              HasSubstr("install libsentencepiece-dev and build again, or convert it once"));
}

#endif

}  // namespace
}  // namespace tessera::data::detail
