#include "tessera/train/report/growing_text.hpp"

#include <gtest/gtest.h>

namespace tessera::train {
namespace {

TEST(GrowingText, WaitsForTheBytesOfACharacter) {
  GrowingText text;
  EXPECT_EQ(text.grow("a\xEF\xBF\xBD"), "a");
  EXPECT_EQ(text.grow("a\xEF\xBF\xBD\xEF\xBF\xBD"), "");
  EXPECT_EQ(text.grow("a\u20AC b"), "\u20AC b");
  EXPECT_EQ(text.grow("a\u20AC b\xEF\xBF\xBD"), "");
  EXPECT_EQ(text.finish("a\u20AC b\xEF\xBF\xBD"), "\xEF\xBF\xBD");
}

TEST(GrowingText, EndsBeforeTheFirstStopString) {
  GrowingText text({"\n\n", "END"});
  EXPECT_FALSE(text.stops("one\ntwo EN"));
  EXPECT_TRUE(text.stops("one\n\n"));
  EXPECT_EQ(text.grow("one"), "one");
  EXPECT_EQ(text.grow("one\n"), "") << "may begin a stop string";
  EXPECT_EQ(text.grow("one\ntwo E"), "\ntwo ");
  EXPECT_EQ(text.grow("one\ntwo Ever E"), "Ever ");
  EXPECT_EQ(text.grow("one\ntwo Ever END and\n\n"), "");
  EXPECT_EQ(text.finish("one\ntwo Ever END and\n\n"), "");
  GrowingText other({"END"});
  EXPECT_EQ(other.grow("one E"), "one ");
  EXPECT_EQ(other.finish("one E"), "E");
}

}  // namespace
}  // namespace tessera::train
