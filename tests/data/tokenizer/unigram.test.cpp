/// Oracle: the best of all ways to cut a word, by trying them. Real tokenizers are compared in
/// data.tokenizer.
#include "tokenizer/unigram.hpp"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <limits>
#include <random>
#include <set>

#include "error_of.hpp"
#include "tessera/core/error.hpp"

namespace tessera::data::detail {
namespace {

using Ids = std::vector<std::int32_t>;
using ::testing::ElementsAre;

UnigramTables tables_of(std::vector<std::pair<std::string, double>> tokens) {
  UnigramTables out;
  out.tokens = std::move(tokens);
  out.unknown_id = 0;
  out.byte_ids.fill(-1);
  return out;
}

Ids encode(Unigram& model, std::string_view word) {
  Ids out;
  model.encode(word, out);
  return out;
}

/// The largest sum of scores of any way to cut @p word.
double best_score(std::string_view word, UnigramTables const& tables) {
  if (word.empty()) return 0;
  double best = -std::numeric_limits<double>::infinity();
  for (auto const& [token, score] : tables.tokens)
    if (word.starts_with(token))
      best = std::max(best, score + best_score(word.substr(token.size()), tables));
  return best;
}

TEST(Unigram, FindsTheLargestSumOfScores) {
  std::mt19937 random(3);
  auto const number = [&](int n) { return static_cast<int>(random() % static_cast<unsigned>(n)); };
  auto const word = [&](int length) {
    std::string out;
    for (int i = 0; i < length; ++i) out.push_back(static_cast<char>('a' + number(3)));
    return out;
  };
  for (int round = 0; round < 50; ++round) {
    auto tables = tables_of({{"<unk>", 0}, {"a", -5.5}, {"b", -4.25}, {"c", -6}});
    std::set<std::string> different;
    for (int i = 0; i < 12; ++i) different.insert(word(2 + number(3)));
    for (auto const& token : different) tables.tokens.emplace_back(token, -0.5 * number(30));
    Unigram model(tables);
    for (int i = 0; i < 20; ++i) {
      std::string const text = word(1 + number(9));
      double sum = 0;
      std::string joined;
      for (std::int32_t const id : encode(model, text)) {
        joined += tables.tokens[static_cast<std::size_t>(id)].first;
        sum += tables.tokens[static_cast<std::size_t>(id)].second;
      }
      EXPECT_EQ(joined, text);
      EXPECT_NEAR(sum, best_score(text, tables), 1e-9) << text;
    }
  }
}

TEST(Unigram, AgreesWithTheExampleOfHuggingFace) {  // models/unigram/model.rs, encode()
  auto const tables = tables_of({{"<unk>", 0},
                                 {"a", 0},
                                 {"b", 0},
                                 {"c", 0},
                                 {"d", 0},
                                 {"cd", 1},
                                 {"ab", 2},
                                 {"abc", 5},
                                 {"abcd", 10}});
  Unigram model(tables);
  EXPECT_THAT(encode(model, "abcd"), ElementsAre(8));
  EXPECT_THAT(encode(model, "abcc"), ElementsAre(7, 3));
  EXPECT_THAT(encode(model, "abcdacdxx"), ElementsAre(8, 1, 5, 0));  // one for the run
}

TEST(Unigram, CharactersWithoutATokenAreUnknownOrBytes) {
  auto tables = tables_of({{"<unk>", 0}, {"a", -1}, {"<0xC3>", -9}, {"<0xA9>", -9}});
  Unigram model(tables);
  EXPECT_THAT(encode(model, "a\u00E9\u00E9a"), ElementsAre(1, 0, 1));
  tables.byte_ids[0xC3] = 2;
  tables.byte_ids[0xA9] = 3;
  Unigram bytes(tables);
  EXPECT_THAT(encode(bytes, "a\u00E9\u00E9a"), ElementsAre(1, 2, 3, 2, 3, 1));
  EXPECT_THAT(encode(bytes, "a\u00E8"), ElementsAre(1, 0));
  tables.unknown_id = -1;
  Unigram none(tables);
  EXPECT_THAT(error_of<DataError>([&] { encode(none, "a\u00E8"); }),
              ::testing::HasSubstr("no token for '\u00E8'"));
}

TEST(TokenTrie, FindsThePrefixesOfAText) {
  TokenTrie const trie({{"ab", 0}, {"a", 1}, {"abcd", 2}, {"b", 3}, {"", 4}, {"ab", 5}});
  std::vector<std::pair<std::size_t, std::int32_t>> found;
  trie.for_each_prefix("abcx", [&](std::size_t n, std::int32_t id) { found.emplace_back(n, id); });
  EXPECT_THAT(found, ElementsAre(std::pair{1, 1}, std::pair{2, 5}));
  EXPECT_EQ(trie.find("abcd"), 2);
  EXPECT_EQ(trie.find("abc"), -1);
  EXPECT_EQ(trie.find("x"), -1);
}

}  // namespace
}  // namespace tessera::data::detail
