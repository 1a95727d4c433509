#include "sequences/bpe_trainer.hpp"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

namespace tessera::data::detail {
namespace {

using ::testing::ElementsAre;
using ::testing::Pair;

TEST(BpeTrainer, MergesTheMostFrequentPairAndOfEqualOnesTheSmallestIds) {
  auto const made = train_bpe({{"abab", 2}, {"abc", 1}, {"cd", 5}}, {.vocabulary_size = 7});
  EXPECT_THAT(made.tokens, ElementsAre("a", "b", "c", "d", "ab", "cd", "abab"));
  EXPECT_THAT(made.merges, ElementsAre(Pair(0, 1), Pair(2, 3), Pair(4, 4)));
}

TEST(BpeTrainer, StopsAtTheLeastFrequencyOrWithoutPairs) {
  EXPECT_THAT(train_bpe({{"ab", 2}, {"cd", 1}}, {.vocabulary_size = 99, .min_frequency = 2}).tokens,
              ElementsAre("a", "b", "c", "d", "ab"));
  EXPECT_THAT(train_bpe({{"ab", 1}}, {.vocabulary_size = 99}).tokens, ElementsAre("a", "b", "ab"));
}

TEST(BpeTrainer, SpecialTokensComeFirstAndTheAlphabetIsSorted) {
  auto const made = train_bpe({{"\u00E9a", 1}}, {.vocabulary_size = 6,
                                                 .min_frequency = 2,
                                                 .special_tokens = {"<s>", "a"},
                                                 .alphabet = {"z", "b"}});
  EXPECT_THAT(made.tokens, ElementsAre("<s>", "a", "b", "z", "\u00E9"));
}

TEST(BpeTrainer, RepeatedSymbolsAreMergedFromTheLeft) {
  auto const made = train_bpe({{"aaaaa", 3}}, {.vocabulary_size = 4});
  EXPECT_THAT(made.tokens, ElementsAre("a", "aa", "aaa", "aaaaa"));
}

}  // namespace
}  // namespace tessera::data::detail
