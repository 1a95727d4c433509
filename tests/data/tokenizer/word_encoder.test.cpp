#include "tokenizer/word_encoder.hpp"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

namespace tessera::data::detail {
namespace {

using Ids = std::vector<std::int32_t>;

/// The length of the word, twice; counts how often it is asked.
class Lengths : public WordEncoder {
 public:
  Lengths() { single_['x'] = 100; }
  int asked = 0;

 private:
  void encode_new(std::string_view word, Ids& out) override {
    ++asked;
    out.insert(out.end(), 2, static_cast<std::int32_t>(word.size()));
  }
};

TEST(WordEncoder, ComputesAWordOnce) {
  Lengths model;
  Ids out;
  for (char const* word : {"ab", "abc", "ab", "", "ab"}) model.encode(word, out);
  EXPECT_THAT(out, ::testing::ElementsAre(2, 2, 3, 3, 2, 2, 0, 0, 2, 2));
  EXPECT_EQ(model.asked, 3);
}

TEST(WordEncoder, DoesNotKeepLongWords) {
  Lengths model;
  Ids out;
  for (int i = 0; i < 3; ++i) model.encode(std::string(1000, 'a'), out);
  EXPECT_EQ(model.asked, 3);
}

TEST(WordEncoder, KnowsWordsOfOneByte) {
  Lengths model;
  Ids out;
  model.encode("x", out);
  model.encode("y", out);
  EXPECT_THAT(out, ::testing::ElementsAre(100, 1, 1));
}

TEST(WordEncoder, StaysRightWhenItForgets) {
  Lengths model;
  Ids out;
  for (int i = 0; i < 300'000; ++i) model.encode(std::to_string(i), out);
  out.clear();
  for (char const* word : {"12", "299999", "12"}) model.encode(word, out);
  EXPECT_THAT(out, ::testing::ElementsAre(2, 2, 6, 6, 2, 2));
}

}  // namespace
}  // namespace tessera::data::detail
