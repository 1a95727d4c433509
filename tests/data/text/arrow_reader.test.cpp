/// Oracle: files that pyarrow and datasets wrote (tests/oracles/arrow_files.py).
#include "text/record_reader.hpp"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <fstream>
#include <sstream>

#include "error_of.hpp"
#include "scratch_files.hpp"
#include "tessera/core/config_tree.hpp"
#include "tessera/data/text/text_files.hpp"

namespace tessera::data::detail {
namespace {

using ::testing::ElementsAre;
using ::testing::HasSubstr;

std::filesystem::path const vectors = TESSERA_TEST_DATA "/data/vectors/arrow";

TEST(SavedDataset, ListsItsFilesInTheirOrder) {
  EXPECT_TRUE(is_saved_dataset(vectors / "saved"));
  EXPECT_FALSE(is_saved_dataset(vectors));
  EXPECT_THAT(files_of_saved_dataset(vectors / "saved"),
              ElementsAre(vectors / "saved/data-00000-of-00002.arrow",
                          vectors / "saved/data-00001-of-00002.arrow"));
  EXPECT_THAT(files_of_saved_dataset(vectors / "dict"),
              ElementsAre(vectors / "dict/train/data-00000-of-00001.arrow"));
}

TEST(SavedDataset, MissingFilesAreNamed) {
  ScratchFiles const folder;
  auto const error = [&] {
    return error_of<DataError>([&] { files_of_saved_dataset(folder.directory()); });
  };
  folder.write("state.json", R"({"_data_files": [{"filename": "a.arrow"}]})");
  EXPECT_THAT(error(), HasSubstr("a.arrow, which"));
  folder.write("state.json", R"({"_data_files": []})");
  EXPECT_THAT(error(), HasSubstr("names no _data_files"));
  folder.write("dataset_dict.json", R"({"splits": ["test"]})");
  EXPECT_THAT(error(), HasSubstr("no split train"));
}

#ifdef TESSERA_HAVE_ARROW

std::vector<std::string> records(std::vector<std::filesystem::path> const& files) {
  std::vector<std::string> out;
  for (auto const& file : files) {
    auto const reader = open_records(file, LineBreaks::keep);
    for (std::string record; reader->next(record);) out.push_back(record);
  }
  return out;
}

TEST(ArrowReader, GivesTheRecordsOfEveryForm) {
  std::vector<std::string> expected;
  ConfigTree const tree = ConfigTree::read((vectors / "records.json").string());
  for (auto const& text : tree.as_array()) expected.push_back(text.as_string());
  for (char const* name : {"text.parquet", "first.parquet", "file.arrow", "saved", "dict"})
    EXPECT_EQ(records(find_text_files(vectors / name)), expected) << name;
}

TEST(ArrowReader, OtherColumnsAreRefused) {
  EXPECT_THAT(error_of<DataError>([] {
                TextColumn column;
                open_arrow(vectors / "numbers.parquet", column);
              }),
              HasSubstr("the column 'text' holds int64"));
}

TEST(ArrowReader, ANullIsABrokenRecord) {
  TextColumn column;
  auto const reader = open_arrow(vectors / "null.parquet", column);
  std::string record;
  EXPECT_TRUE(reader->next(record));
  EXPECT_THAT(error_of<BrokenRecord>([&] { reader->next(record); }),
              HasSubstr("null.parquet record 2 is null"));
  EXPECT_TRUE(reader->skip_broken());
  EXPECT_TRUE(reader->next(record));
  EXPECT_EQ(record, "b");
  EXPECT_FALSE(reader->next(record));
}

/// Every prefix of a file, and files with one wrong byte, end with an error or with records.
TEST(ArrowReader, DamagedFilesAreDataErrors) {
  for (char const* name : {"text.parquet", "file.arrow", "saved/data-00000-of-00002.arrow"}) {
    std::ifstream in(vectors / name, std::ios::binary);
    std::string const bytes = (std::stringstream() << in.rdbuf()).str();
    ScratchFiles const folder;
    std::string const kind = std::filesystem::path(name).extension();
    auto const try_to_read = [&](std::string const& content) {
      std::string const file = folder.write("a" + kind, content);
      try {
        records({file});
      } catch (DataError const& error) {
        EXPECT_THAT(error.what(), HasSubstr(file));
      }
    };
    for (std::size_t n = 0; n < bytes.size(); n += 97) {
      try_to_read(bytes.substr(0, n));
      std::string wrong = bytes;
      wrong[n] = static_cast<char>(wrong[n] ^ 0x41);
      try_to_read(wrong);
    }
  }
}

#else

TEST(ArrowReader, WithoutTheLibraryTheMessageNamesTheWayOut) {
  EXPECT_FALSE(reads_arrow());
  EXPECT_THAT(error_of<ConfigError>([] {
                TextColumn column;
                open_arrow(vectors / "text.parquet", column);
              }),
              HasSubstr("built without Apache Arrow"));
  EXPECT_THAT(error_of<ConfigError>([] { find_text_files(vectors / "saved"); }),
              HasSubstr("datasets.load_from_disk('"));
}

#endif

}  // namespace
}  // namespace tessera::data::detail
