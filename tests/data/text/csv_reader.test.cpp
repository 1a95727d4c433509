#include "text/csv_reader.hpp"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "scratch_files.hpp"
#include "tessera/core/config_tree.hpp"

namespace tessera::data::detail {
namespace {

using ::testing::ElementsAre;

std::vector<std::string> read(std::filesystem::path const& file) {
  TextColumn column;
  CsvReader reader(file, column);
  std::vector<std::string> out;
  for (std::string record; reader.next(record);) out.push_back(record);
  return out;
}

TEST(CsvReader, EqualsHuggingFace) {
  std::string const folder = TESSERA_TEST_DATA "/data/vectors/text/";
  ConfigTree const expected = ConfigTree::read(folder + "csv.json");
  for (auto const& [name, records] : expected.as_object()) {
    SCOPED_TRACE(name);
    std::vector<std::string> texts;
    for (auto const& text : records.as_array()) texts.push_back(text.as_string());
    EXPECT_EQ(read(folder + name), texts);
  }
}

TEST(CsvReader, EmptyFieldsAndNumbersAreText) {
  ScratchFiles const folder;
  EXPECT_THAT(read(folder.write("a.csv", "text,n\n,1\n12,2\nNA,3\n\"\",4\n")),
              ElementsAre("", "12", "NA", ""));
  EXPECT_THAT(read(folder.write("a.csv", "n,text\n1,\n2,b")), ElementsAre("", "b"));
}

TEST(CsvReader, NamesTheLineOfAFieldWithoutEnd) {
  ScratchFiles const folder;
  EXPECT_THROW(read(folder.write("a.csv", "\n\n")), DataError);
  try {
    read(folder.write("a.csv", "text\nfine\n\"two\nlines\"\n\"no end\n"));
    FAIL();
  } catch (DataError const& error) {
    EXPECT_THAT(error.what(), ::testing::HasSubstr("a.csv line 5: the file ends inside"));
  }
}

}  // namespace
}  // namespace tessera::data::detail
