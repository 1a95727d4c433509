#include "format/detail/json_reader.hpp"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <functional>

#include "tessera/core/error.hpp"

namespace tessera::checkpoint::detail {
namespace {

using ::testing::AllOf;
using ::testing::HasSubstr;

std::string refusal(std::string_view text, std::function<void(JsonReader&)> const& read) {
  JsonReader json(text, "x.json");
  try {
    read(json);
    json.end();
  } catch (DataError const& e) {
    return e.what();
  }
  return "";
}

TEST(JsonReader, ReadsMembersAndElementsInOrder) {
  std::string_view const text = R"( {"a": [1, -2 , 9223372036854775807], "b":"x",
      "c": {"n": null, "t": [true, 1.5e3, "]}"]}, "d": []} )";
  JsonReader json(text, "x.json");
  std::vector<std::int64_t> numbers;
  std::string raw, b, keys;
  json.object([&](std::string const& key) {
    keys += key;
    if (key == "a" || key == "d")
      json.array([&] { numbers.push_back(json.integer()); });
    else if (key == "b")
      b = json.string();
    else
      raw = json.raw();
  });
  json.end();
  EXPECT_EQ(keys, "abcd");
  EXPECT_EQ(numbers, (std::vector<std::int64_t>{1, -2, INT64_MAX}));
  EXPECT_EQ(b, "x");
  EXPECT_EQ(raw, R"({"n": null, "t": [true, 1.5e3, "]}"]})");
}

TEST(JsonReader, DecodesEscapes) {
  JsonReader json(R"("\"\\\/\b\f\n\r\t\u0041\u00e9\u20ac\ud83d\ude00")", "x.json");
  EXPECT_EQ(json.string(), "\"\\/\b\f\n\r\tA\xc3\xa9\xe2\x82\xac\xf0\x9f\x98\x80");
}

TEST(JsonReader, NamesSourceLineAndColumn) {
  EXPECT_THAT(refusal("[1,\n 2,\n  x]",
                      [](JsonReader& json) { json.array([&] { (void)json.integer(); }); }),
              AllOf(HasSubstr("x.json, line 3, column 3"), HasSubstr("expected an integer")));
}

TEST(JsonReader, RefusesWhatIsNotStrictJson) {
  auto const integer = [](JsonReader& json) { (void)json.integer(); };
  auto const string = [](JsonReader& json) { (void)json.string(); };
  auto const array = [](JsonReader& json) { json.array([&] { (void)json.integer(); }); };
  auto const raw = [](JsonReader& json) { (void)json.raw(); };
  struct Case {
    std::string text;
    std::function<void(JsonReader&)> read;
    char const* message;
  };
  Case const cases[] = {
      {"9223372036854775808", integer, "does not fit in 64 bits"},
      {"1.5", integer, "expected an integer"},
      {"1e3", integer, "expected an integer"},
      {"", integer, "too early"},
      {"1 2", integer, "text follows the end"},
      {"[1 2]", array, "expected ','"},
      {"[1,", array, "too early"},
      {"{}", array, "expected '['"},
      {"\"a", string, "has no end"},
      {"\"a\nb\"", string, "control character"},
      {"\"\\x\"", string, "unknown escape"},
      {"\"\\u12g4\"", string, "four hexadecimal digits"},
      {"\"\\ud83d\"", string, "half a surrogate pair"},
      {"\"\\ude00\"", string, "half a surrogate pair"},
      {"\"\xff\"", string, "not valid UTF-8"},
      {"[[1]", raw, "too early"},
      {",", raw, "a value is missing"},
      {std::string(65, '['), raw, "nested deeper than 64 levels"},
  };
  for (auto const& c : cases) EXPECT_THAT(refusal(c.text, c.read), HasSubstr(c.message)) << c.text;
  std::function<void(JsonReader&)> deep = [&](JsonReader& json) {
    json.array([&] { deep(json); });
  };
  EXPECT_THAT(refusal(std::string(100, '['), deep), HasSubstr("nested deeper than 64 levels"));
}

}  // namespace
}  // namespace tessera::checkpoint::detail
