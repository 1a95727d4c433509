/// Oracle: the algorithm of Sennrich et al. as a search over all pairs.
#include "tokenizer/bpe.hpp"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <map>
#include <random>

namespace tessera::data::detail {
namespace {

using Ids = std::vector<std::int32_t>;
using ::testing::ElementsAre;

/// A word's ids by joining the pair of the lowest rank, the leftmost of equals, until none is left.
Ids reference(std::string_view word, BpeTables const& tables) {
  std::map<std::pair<std::int32_t, std::int32_t>, std::size_t> ranks;
  for (std::size_t k = 0; k < tables.merges.size(); ++k)
    ranks[{tables.merges[k].left, tables.merges[k].right}] = k;
  Ids ids;
  for (char const c : word) ids.push_back(tables.byte_ids[static_cast<unsigned char>(c)]);
  while (true) {
    std::size_t best = tables.merges.size(), at = 0;
    for (std::size_t i = 0; i + 1 < ids.size(); ++i)
      if (auto const found = ranks.find({ids[i], ids[i + 1]});
          found != ranks.end() && found->second < best)
        best = found->second, at = i;
    if (best == tables.merges.size()) return ids;
    ids[at] = tables.merges[best].result;
    ids.erase(ids.begin() + static_cast<std::ptrdiff_t>(at) + 1);
  }
}

/// Bytes 'a' to 'd' are ids 0 to 3; merge k makes id 4 + k of two earlier ids.
BpeTables random_tables(unsigned seed) {
  std::mt19937 random(seed);
  BpeTables tables;
  tables.byte_ids.fill(-1);
  for (int c = 0; c < 4; ++c) tables.byte_ids[static_cast<std::size_t>('a' + c)] = c;
  for (std::int32_t id = 4; id < 40; ++id)
    tables.merges.push_back({static_cast<std::int32_t>(random() % static_cast<unsigned>(id)),
                             static_cast<std::int32_t>(random() % static_cast<unsigned>(id)), id});
  return tables;
}

TEST(Bpe, EqualsASearchOverAllPairs) {
  for (unsigned seed = 0; seed < 20; ++seed) {
    BpeTables const tables = random_tables(seed);
    Bpe bpe(tables);
    std::mt19937 random(seed + 100);
    for (int n = 0; n < 200; ++n) {
      std::string word(random() % 90, ' ');  // beyond the 64 bytes that are cached
      for (char& c : word) c = static_cast<char>('a' + random() % 4);
      for (int pass = 0; pass < 2; ++pass) {
        Ids ids;
        bpe.encode(word, ids);
        ASSERT_EQ(ids, reference(word, tables)) << word << " seed " << seed;
      }
    }
  }
}

TEST(Bpe, BytesWithoutATokenAreDroppedReplacedOrFused) {
  BpeTables tables = random_tables(1);
  tables.merges.clear();
  auto const encode = [&](std::string_view word) {
    Ids ids;
    Bpe(tables).encode(word, ids);
    return ids;
  };
  EXPECT_THAT(encode("axyb"), ElementsAre(0, 1));
  tables.unknown_id = 99;
  EXPECT_THAT(encode("axyb"), ElementsAre(0, 99, 99, 1));
  tables.fuse_unknown = true;
  EXPECT_THAT(encode("axyb"), ElementsAre(0, 99, 1));
}

TEST(Bpe, AWordOfTheVocabularyIsTakenBeforeMerges) {
  BpeTables tables = random_tables(2);
  tables.vocabulary_words["abcd"] = 77;
  Bpe bpe(tables);
  Ids ids;
  bpe.encode("abcd", ids);
  EXPECT_THAT(ids, ElementsAre(77));
}

TEST(MergeTable, FindsPairsAndTheLastRankOfARepeatedOne) {
  MergeTable const table({{1, 2, 10}, {2, 1, 11}, {1, 2, 12}});
  ASSERT_NE(table.find(1, 2), nullptr);
  EXPECT_EQ(table.find(1, 2)->result, 12);
  EXPECT_EQ(table.find(1, 2)->rank, 2);
  EXPECT_EQ(table.find(2, 1)->result, 11);
  EXPECT_EQ(table.find(2, 2), nullptr);
  EXPECT_EQ(MergeTable({}).find(0, 0), nullptr);
}

}  // namespace
}  // namespace tessera::data::detail
