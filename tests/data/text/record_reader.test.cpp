#include "text/record_reader.hpp"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "scratch_files.hpp"
#include "tessera/core/error.hpp"

namespace tessera::data::detail {
namespace {

using ::testing::ElementsAre;
using Records = std::vector<std::string>;

struct Read {
  Records records;
  std::int64_t replacements;
};

Read read(std::string const& name, std::string const& text,
          LineBreaks line_breaks = LineBreaks::keep) {
  ScratchFiles const folder;
  TextColumn column;
  auto const reader = open_records(folder.write(name, text), line_breaks, column);
  Read out{};
  for (std::string record; reader->next(record);) out.records.push_back(record);
  out.replacements = reader->replacements();
  return out;
}

TEST(RecordReader, LinesEndWithAnyNewline) {
  EXPECT_THAT(read("a.txt", "one\r\n\ntwo\rthree").records,
              ElementsAre("one\n", "\n", "two\n", "three"));
  EXPECT_THAT(read("a.txt", "one\n\ntwo\n", LineBreaks::drop).records,
              ElementsAre("one", "", "two"));
  EXPECT_THAT(read("a.txt", "").records, ElementsAre());
  EXPECT_THAT(read("a.txt", "a\vb\x1C\xC2\x85").records, ElementsAre("a\vb\x1C\xC2\x85"));
}

TEST(RecordReader, JsonLinesAndArrayGiveTheSameRecords) {
  Records const expected{"a\nb", "{\"}", ""};
  std::string const objects[] = {R"({"text": "a\nb", "id": 1})", R"({"id": 2, "text": "{\"}"})",
                                 R"({"text": ""})"};
  EXPECT_EQ(read("a.jsonl", objects[0] + "\n" + objects[1] + "\n\n" + objects[2]).records,
            expected);
  EXPECT_EQ(
      read("a.json", "[" + objects[0] + ", " + objects[1] + ",\n" + objects[2] + "]\n").records,
      expected);
}

TEST(RecordReader, WithoutTextTheFirstMemberIsRead) {
  EXPECT_THAT(read("a.json", R"({"body": "x", "id": 1} {"id": 2, "body": "y"})").records,
              ElementsAre("x", "y"));
}

/// The records, with the messages of broken ones in their place.
Records read_around(std::string const& name, std::string const& text) {
  ScratchFiles const folder;
  TextColumn column;
  auto const reader = open_records(folder.write(name, text), LineBreaks::keep, column);
  Records out;
  std::string record;
  while (true) {
    try {
      if (!reader->next(record)) return out;
      out.push_back(record);
    } catch (BrokenRecord const& error) {
      std::string const what = error.what();
      out.push_back(what.substr(what.rfind('/') + 1));
      if (!reader->skip_broken()) return out;
    }
  }
}

TEST(RecordReader, ReadsOnAfterABrokenRecord) {
  using ::testing::StartsWith;
  EXPECT_THAT(
      read_around("a.jsonl",
                  "{\"text\": \"a\"}\n{\"text\": \"no end}\n{\"text\": \"b\"}\nnonsense } {\n\n"
                  "{\"text\": 7}\n{\"text\": \"c\"}\n{\"text\"\n: \"d\"}\n{\"text\": \"cut"),
      ElementsAre("a", StartsWith("a.jsonl line 2, record 2 is cut short"), "b",
                  StartsWith("a.jsonl line 4, record 4 is not an object"),
                  StartsWith("a.jsonl line 6, record 5: 'text' is"), "c", "d",
                  StartsWith("a.jsonl line 10, record 8 is cut short")));
  EXPECT_THAT(read_around("a.json", "[{\"text\": \"a\"},\n {\"text\": null},\n {\"text\": \"b\"}]"),
              ElementsAre("a", StartsWith("a.json line 2, record 2: 'text' is null"), "b"));
  EXPECT_THAT(read_around("a.csv", "n,text\n1,a\n1,2,3\n2\n3,b\n"),
              ElementsAre("a", StartsWith("a.csv line 3 has 3 fields, and the header names 2"),
                          StartsWith("a.csv line 4 has 1 fields; the text is field 2"), "b"));
}

/// datasets reads the mark as a part of the first line of .txt, and skips it before JSON and CSV.
TEST(RecordReader, AMarkOfUtf8IsNoPartOfRecords) {
  std::string const mark = "\xEF\xBB\xBF";
  EXPECT_THAT(read("a.jsonl", mark + "{\"text\": \"a\"}\n{\"text\": \"b\"}\n").records,
              ElementsAre("a", "b"));
  EXPECT_THAT(read("a.json", mark + "[{\"text\": \"a\"}]").records, ElementsAre("a"));
  EXPECT_THAT(read("a.csv", mark + "text\na\n").records, ElementsAre("a"));
  EXPECT_THAT(read("a.txt", mark + "a\n").records, ElementsAre(mark + "a\n"));
}

TEST(RecordReader, OtherEncodingsAreNamed) {
  using namespace std::string_literals;
  for (char const* name : {"a.txt", "a.jsonl", "a.csv"}) try {
      read(name, "\xFF\xFEh\0e\0l\0l\0o\0"s);
      ADD_FAILURE() << name;
    } catch (DataError const& error) {
      EXPECT_THAT(error.what(), ::testing::HasSubstr("is text in UTF-16, and Tessera reads UTF-8"));
      EXPECT_THAT(error.what(), ::testing::HasSubstr("| iconv -f UTF-16 -t UTF-8"));
    }
  EXPECT_THROW(read("a.txt", "h\0e\0l\0l\0o\0"s), DataError) << "without a mark";
  EXPECT_THAT(read("a.txt", "h\0e\n"s).records, ElementsAre("h\0e\n"s)) << "too short to tell";
}

/// datasets 4 reads NaN and Infinity too; it stops at the other three.
TEST(RecordReader, MembersThatAreNotReadMayBeAnything) {
  std::string const nested(1000, '[');
  EXPECT_THAT(read("a.jsonl",
                   "{\"text\": \"NaN\", \"x\": NaN, \"y\": [-Infinity, {\"z\": Infinity}]}\n"
                   "{\"x\": 1e999, \"text\": \"b\\\" NaN\"}\n"
                   "{\"m\": 1, \"text\": \"c\", \"m\": {\"k\": 1, \"k\": 2}}\n"
                   "{\"m\": " +
                       nested + std::string(1000, ']') + ", \"text\": \"d\"}\n")
                  .records,
              ElementsAre("NaN", "b\" NaN", "c", "d"));
  EXPECT_THAT(
      read_around("b.jsonl",
                  "{\"text\": NaN}\n{\"text\": \"a\", \"text\": \"b\"}\n"
                  "{\"text\": \"c\", \"x\": nan}\n{\"text\": \"d\"}\n"),
      ElementsAre(::testing::StartsWith("b.jsonl line 1, record 1: 'text' is null"),
                  ::testing::StartsWith("b.jsonl line 2, record 2 has the member 'text' "
                                        "twice"),
                  ::testing::StartsWith("b.jsonl line 3, record 3 is not valid JSON"), "d"));
}

TEST(RecordReader, CountsReplacedBytes) {
  Read const lines = read("a.txt", "caf\xE9\n\xFF\xFE\n");
  EXPECT_THAT(lines.records, ElementsAre("caf\uFFFD\n", "\uFFFD\uFFFD\n"));
  EXPECT_EQ(lines.replacements, 3);
}

TEST(RecordReader, UnknownExtensionsAreErrors) {
  EXPECT_THROW(read("a.tsv", "x"), ConfigError);
  EXPECT_THROW(read("a", "x"), ConfigError);
}

}  // namespace
}  // namespace tessera::data::detail
