#include "text/record_files.hpp"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "scratch_files.hpp"

namespace tessera::data::detail {
namespace {

using ::testing::ElementsAre;

std::vector<std::string> all_of(RecordFiles& files) {
  std::vector<std::string> out;
  for (std::string record; files.next(record);) out.push_back(record);
  return out;
}

TEST(RecordFiles, ReadsFilesOfAnyKindInTheirOrder) {
  ScratchFiles const folder;
  RecordFiles files(
      {folder.write("b.txt", "one\ntwo"), folder.write("empty.txt", ""),
       folder.write("a.jsonl", "{\"body\": \"three\"}"), folder.write("c.csv", "n,body\n1,four\n")},
      LineBreaks::keep, BrokenRecords::stop);
  EXPECT_THAT(all_of(files), ElementsAre("one\n", "two", "three", "four"));
  EXPECT_EQ(files.position(), files.total_bytes());
  EXPECT_EQ(files.total_bytes(), 7 + 17 + 14);
}

/// The library datasets has this rule: the columns of the first file are those of the data set,
/// whatever their order in others.
TEST(RecordFiles, TheColumnIsThatOfTheFirstFile) {
  ScratchFiles const folder;
  auto const records = [](std::vector<std::filesystem::path> names, TextColumn column = {}) {
    RecordFiles files(std::move(names), LineBreaks::keep, BrokenRecords::stop, std::move(column));
    return all_of(files);
  };
  auto const a = folder.write("a.jsonl", R"({"body": "one", "title": "t"})"),
             b = folder.write("b.jsonl", R"({"title": "u", "body": "two"})"),
             c = folder.write("c.csv", "title,body\nv,three\n"),
             text = folder.write("text.jsonl", R"({"body": "x", "text": "y"})"),
             other = folder.write("other.csv", "title\nw\n");
  EXPECT_THAT(records({a, b, c}), ElementsAre("one", "two", "three"));
  EXPECT_THAT(records({b, a}), ElementsAre("u", "t"));
  EXPECT_THAT(records({c, b}), ElementsAre("v", "u"));
  EXPECT_THAT(records({b}, {"body", a}), ElementsAre("two"));
  using ::testing::HasSubstr, ::testing::ThrowsMessage;
  EXPECT_THAT(
      [&] {
        records({a, text});
      },
      ThrowsMessage<DataError>(HasSubstr("has a member 'text', which the first of")));
  EXPECT_THAT(
      [&] {
        records({a, other});
      },
      ThrowsMessage<DataError>(HasSubstr("other.csv has no column 'body', which")));
  EXPECT_THAT(
      [&] {
        records({other}, {"text", text});
      },
      ThrowsMessage<DataError>(HasSubstr("has no column 'text', which")));
}

TEST(RecordFiles, StopsAtOrSkipsBrokenRecords) {
  ScratchFiles const folder;
  std::vector<std::filesystem::path> const names = {
      folder.write("a.jsonl", "{\"text\": \"a\"}\n{\"text\": 1}\n{\"text\": \"b\"}\n{\n"),
      folder.write("b.jsonl", "x\n{\"text\": \"c\"}\n")};
  RecordFiles stops(names, LineBreaks::keep, BrokenRecords::stop);
  EXPECT_THROW(all_of(stops), DataError);
  RecordFiles skips(names, LineBreaks::keep, BrokenRecords::skip);
  EXPECT_THAT(all_of(skips), ElementsAre("a", "b", "c"));
  EXPECT_EQ(skips.skipped(), 3);
}

TEST(RecordFiles, AnArrayThatIsNotClosedIsNoRecordToSkip) {
  ScratchFiles const folder;
  RecordFiles files({folder.write("a.json", "[{\"text\": \"a\"}, 7, {\"text\": \"b\"}]")},
                    LineBreaks::keep, BrokenRecords::skip);
  EXPECT_THROW(all_of(files), DataError);
}

}  // namespace
}  // namespace tessera::data::detail
