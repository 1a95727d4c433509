#include "detail/hjson.hpp"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "error_of.hpp"
#include "tessera/core/config_tree.hpp"

namespace tessera {
namespace {

using ::testing::HasSubstr;

std::string read(std::string const& text) {
  return ConfigTree::parse(text, "ds.json", ConfigTree::Syntax::relaxed).dump();
}
std::string refusal(std::string const& text) {
  return error_of<DataError>([&] { read(text); });
}

TEST(Hjson, KeysAndTextWithoutQuotes) {
  EXPECT_EQ(read("{\n stage: 2\n device: cpu  \n enabled : true,\n}"),
            R"({"stage":2,"device":"cpu","enabled":true})");
  EXPECT_EQ(read("stage: \"2\"\nfp16: {enabled: true, loss_scale: 0}"),
            R"({"stage":"2","fp16":{"enabled":true,"loss_scale":0}})");
  EXPECT_EQ(read("{'single': 'x', a: [1 // one\n 2, -3e2]}"), R"({"single":"x","a":[1,2,-300.0]})");
}

TEST(Hjson, TextWithoutQuotesTakesTheRestOfItsLine) {
  EXPECT_EQ(read("{\n\"enabled\": auto,   //true\n}"), R"({"enabled":"auto,   //true"})");
  EXPECT_EQ(read("{a: nullable, b\n}"), R"({"a":"nullable, b"})");
  EXPECT_THAT(refusal("{enabled: auto}"), HasSubstr("text without quotes extends"));
}

TEST(Hjson, NumbersAreThoseOfJson) {
  EXPECT_EQ(read("[5e8, -0.5, 007\n, 1.\n .5\n 99999999999999999999]"),
            R"([500000000.0,-0.5,"007","1.",".5",1e+20])");
}

TEST(Hjson, EscapesAndLines) {
  EXPECT_EQ(read(R"(["a\"b\u00e9\ud83d\ude00\n", "\ud800x"])"),
            "[\"a\\\"b\u00e9\U0001F600\\n\",\"\uFFFDx\"]");
  EXPECT_EQ(read("{\n  text: '''\n  first\n    second\n  '''\n}"), R"({"text":"first\nsecond"})");
}

TEST(Hjson, ErrorsNameLineAndColumn) {
  EXPECT_THAT(refusal("{\n a 1\n}"), HasSubstr("line 2, column 2: a key is expected, found 'a 1'"));
  EXPECT_THAT(refusal("{a: 1}}"), HasSubstr("text follows the document"));
  EXPECT_THAT(refusal("{a: }"), HasSubstr("a value is expected"));
  EXPECT_THAT(refusal("{a: [1, 2"), HasSubstr("this list is not closed"));
  EXPECT_THAT(refusal("{a: \"x\ny\"}"), HasSubstr("does not end on its line"));
  EXPECT_THAT(refusal("{a: \"\\q\"}"), HasSubstr("unknown escape"));
  EXPECT_THAT(refusal("{a: 1,, b: 2}"), HasSubstr("a key is expected"));
  EXPECT_THAT(refusal("{a: 1 /* open"), HasSubstr("no end"));
  EXPECT_THAT(refusal("{a: 1, a: 2}"), HasSubstr("'a' appears twice"));
}

}  // namespace
}  // namespace tessera
