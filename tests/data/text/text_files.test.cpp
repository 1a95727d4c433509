#include "tessera/data/text/text_files.hpp"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "error_of.hpp"
#include "scratch_files.hpp"

namespace tessera::data {
namespace {

using ::testing::ElementsAre;
using ::testing::HasSubstr;

TEST(TextFiles, AreNamedByPathsAndPatterns) {
  ScratchFiles const folder;
  std::string const a = folder.write("a.txt", ""), b = folder.write("b.txt", ""),
                    comma = folder.write("c,d[1].txt", ""), at = folder.directory().string();
  EXPECT_THAT(find_text_files(a), ElementsAre(a));
  EXPECT_THAT(find_text_files(b + "," + a), ElementsAre(b, a));
  EXPECT_THAT(find_text_files(at + "/[ab].txt," + a), ElementsAre(a, b, a));
  EXPECT_THAT(find_text_files(comma), ElementsAre(comma));
}

TEST(TextFiles, MissingOnesAreNamed) {
  ScratchFiles const folder;
  std::string const a = folder.write("a.txt", ""), at = folder.directory().string();
  EXPECT_THAT(error_of<IoError>([&] { find_text_files(a + "," + at + "/none.txt"); }),
              HasSubstr("none.txt: there is no such file"));
  EXPECT_THAT(error_of<IoError>([&] { find_text_files(at + "/*.jsonl"); }),
              HasSubstr("no file matches"));
  EXPECT_THAT(error_of<ConfigError>([&] { find_text_files(a + ",,"); }),
              HasSubstr("has an empty entry"));
}

TEST(TextFiles, ADirectoryIsNamedByAPattern) {
  ScratchFiles const folder;
  EXPECT_THAT(error_of<ConfigError>([&] { find_text_files(folder.directory()); }),
              HasSubstr("it is a directory; name its files with a pattern"));
}

#ifndef TESSERA_HAVE_ARROW
TEST(TextFiles, OtherKindsNameTheirConversion) {
  ScratchFiles const folder;
  auto const error = [](std::filesystem::path const& path) {
    return error_of<ConfigError>([&] { find_text_files(path); });
  };
  EXPECT_THAT(error(folder.write("a.parquet", "")), HasSubstr("datasets.Dataset.from_parquet('"));
  EXPECT_THAT(error(folder.write("a.arrow", "")), HasSubstr("datasets.Dataset.from_file('"));
  folder.write("state.json", "{}");
  EXPECT_THAT(error(folder.directory()), HasSubstr("datasets.load_from_disk('"));
  folder.write("dataset_dict.json", "{}");
  EXPECT_THAT(error(folder.directory()), HasSubstr("')['train'].to_json"));
}
#endif

TEST(TextFiles, TheKindIsBeforeTheCompression) {
  EXPECT_EQ(kind_of_file("a/b.jsonl.zst"), ".jsonl");
  EXPECT_EQ(kind_of_file("b.txt.gz"), ".txt");
  EXPECT_EQ(kind_of_file("b.csv"), ".csv");
}

}  // namespace
}  // namespace tessera::data
