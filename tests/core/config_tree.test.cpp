#include "tessera/core/config_tree.hpp"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "error_of.hpp"

using tessera::ConfigTree;
using tessera::DataError;
using Syntax = tessera::ConfigTree::Syntax;

namespace {

std::string parse_error(std::string const& text, Syntax syntax = Syntax::strict) {
  return tessera::error_of<DataError>([&] { ConfigTree::parse(text, "ds.json", syntax); });
}

TEST(ConfigTree, KeepsTypesAndOrder) {
  auto const tree =
      ConfigTree::parse(R"({"b": 1, "a": 2.5, "c": [true, null, "x"], "d": 5e8})", "t");
  EXPECT_EQ(tree.as_object()[0].first, "b");
  EXPECT_TRUE(tree.at("b").is_int());
  EXPECT_FALSE(tree.at("a").is_int());
  EXPECT_DOUBLE_EQ(tree.at("a").as_double(), 2.5);
  EXPECT_EQ(tree.at("d").as_int(), 500000000);
  EXPECT_TRUE(tree.at("c").as_array()[1].is_null());
  EXPECT_EQ(tree.dump(), R"({"b":1,"a":2.5,"c":[true,null,"x"],"d":500000000.0})");
}

TEST(ConfigTree, RefusesDuplicateKeysAndNamesThem) {
  EXPECT_THAT(parse_error(R"({"fp16": {"enabled": true}, "fp16": {}})"),
              ::testing::HasSubstr("'fp16' appears twice"));
}

TEST(ConfigTree, NamesTheLineOfAnError) {
  EXPECT_THAT(parse_error("{\n \"a\": 1,,\n}"), ::testing::HasSubstr("line 2"));
}

TEST(ConfigTree, RelaxedSyntaxTakesCommentsAndTrailingCommas) {
  std::string const text = R"({ # hash
    "a": 1, // slashes "quoted" }
    /* block
       , */ "url": "http://x#y,]", "list": [1, 2,],
  })";
  EXPECT_NE(parse_error(text), "");
  auto const tree = ConfigTree::parse(text, "t", Syntax::relaxed);
  EXPECT_EQ(tree.at("url").as_string(), "http://x#y,]");
  EXPECT_EQ(tree.at("list").size(), 2u);
}

TEST(ConfigTree, RelaxedSyntaxPutsMissingCommasAtLineEnds) {
  std::string const text =
      "{\n  \"a\": \"auto\" // why\n  \"b\": {\n \"c\": 1e3\n \"d\": [1\n 2]}\n  \"e\"\n: true\n}";
  EXPECT_NE(parse_error(text), "");
  EXPECT_EQ(ConfigTree::parse(text, "t", Syntax::relaxed).dump(),
            R"({"a":"auto","b":{"c":1000.0,"d":[1,2]},"e":true})");
  EXPECT_THAT(parse_error("{\"a\": 1 \"b\": 2}", Syntax::relaxed), ::testing::HasSubstr("line 1"));
  EXPECT_THAT(parse_error("{\"a\": 1 /* open", Syntax::relaxed), ::testing::HasSubstr("line 1"));
  EXPECT_NE(parse_error("{\"a\\", Syntax::relaxed), "");
}

TEST(ConfigTree, RefusesDeepNesting) {
  EXPECT_THAT(parse_error(std::string(100, '[')), ::testing::HasSubstr("nested deeper"));
}

TEST(ConfigTree, RefusesMoreValuesThanMemoryShouldHold) {
  std::string text(1, '[');
  for (int i = 0; i < 4'000'001; ++i) text += "0,";
  text += "0]";
  EXPECT_THAT(parse_error(text), ::testing::HasSubstr("more than 4000000 values"));
}

TEST(ConfigTree, ManyKeysAreWrittenInTheirTime) {
  ConfigTree::Object members;
  for (int i = 0; i < 200'000; ++i) members.emplace_back(std::to_string(i), ConfigTree(i));
  EXPECT_GT(ConfigTree(std::move(members)).dump().size(), 2'000'000u);
}

TEST(ConfigTree, TypedReadsNameTheFoundType) {
  auto const tree = ConfigTree::parse(R"({"n": "four", "x": 1.5})", "t");
  EXPECT_THROW((void)tree.at("n").as_int(), DataError);
  EXPECT_THROW((void)tree.at("x").as_int(), DataError);
  EXPECT_THROW((void)tree.at("missing"), DataError);
}

TEST(ConfigTree, NonFiniteNumbersBecomeNull) { EXPECT_EQ(ConfigTree(0.0 / 0.0).dump(), "null"); }

TEST(ConfigTree, ReadsRecordsOfPython) {
  auto const record = ConfigTree::parse_record(
      R"({"a": "NaN \" Infinity", "b": NaN, "c": [1, Infinity], "d": {"e": -Infinity}, "f": 1e400})",
      "record");
  EXPECT_EQ(record.at("a").as_string(), "NaN \" Infinity");
  for (char const* null : {"b", "f"}) EXPECT_TRUE(record.at(null).is_null()) << null;
  EXPECT_EQ(record.at("c"), ConfigTree::array());
  EXPECT_EQ(record.at("d"), ConfigTree::object());
  for (char const* bad : {R"({"a": nan})", R"({"a": 1)", R"({"a": +1})", "{NaN: 1}", ""})
    EXPECT_THROW(ConfigTree::parse_record(bad, "record"), DataError) << bad;
}

}  // namespace
