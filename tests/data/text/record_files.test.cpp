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
       folder.write("a.jsonl", "{\"body\": \"three\"}"), folder.write("c.csv", "text\nfour\n")},
      LineBreaks::keep, BrokenRecords::stop);
  EXPECT_THAT(all_of(files), ElementsAre("one\n", "two", "three", "four"));
  EXPECT_EQ(files.position(), files.total_bytes());
  EXPECT_EQ(files.total_bytes(), 7 + 17 + 10);
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
