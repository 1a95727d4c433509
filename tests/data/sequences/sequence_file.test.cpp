#include "sequences/sequence_file.hpp"

#include <fcntl.h>
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <fstream>

#include "error_of.hpp"
#include "scratch_files.hpp"

namespace tessera::data {
namespace {

using ::testing::ElementsAre;
using ::testing::HasSubstr;
using Check = SequenceFile::Check;
using Ids = std::vector<std::int32_t>;

class SequenceFiles : public ::testing::Test {
 protected:
  std::filesystem::path write(Ids const& ids) {
    std::filesystem::path const file = folder_.directory() / "cache" / "a.tsrb";
    SequenceWriter out(file, 3);
    out.append(ids);
    EXPECT_FALSE(std::filesystem::exists(file));
    out.commit(5, 8, 77, 99);
    return file;
  }
  std::string open_error(std::filesystem::path const& file, std::uint64_t key = 77) {
    return error_of<DataError>([&] { SequenceFile::open(file, key, Check::ids_too); });
  }
  ScratchFiles folder_;
};

/// Examples of odd numbers of tokens, with flags above their ids.
TEST_F(SequenceFiles, KeepExamplesWithTheirLengths) {
  std::filesystem::path const file = folder_.directory() / "examples.tsrb";
  std::vector<Ids> const examples{{4 | not_predicted, 7, 2}, {9}, {1, 8 | begins_document, 3}};
  SequenceWriter out(file, 1);
  for (auto const& example : examples) out.append_example(example);
  out.append_example({});  // none
  out.commit(4, 7, 77, 99);
  TokenSequences const read = SequenceFile::open(file, 77, Check::ids_too);
  ASSERT_EQ(read.count(), 3);
  EXPECT_TRUE(read.holds_examples());
  EXPECT_EQ(read.length(), 3);
  EXPECT_EQ(read.max_id(), 9);
  for (std::size_t i = 0; i < examples.size(); ++i)
    EXPECT_EQ(
        Ids(read[static_cast<std::int64_t>(i)].begin(), read[static_cast<std::int64_t>(i)].end()),
        examples[i]);
  EXPECT_EQ(SequenceFile::open(::open(file.c_str(), O_RDONLY), file).count(), 3);
  std::filesystem::resize_file(file, std::filesystem::file_size(file) - 8);
  EXPECT_THAT(open_error(file), HasSubstr("is cut short"));
}

TEST_F(SequenceFiles, KeepIdsAndFacts) {
  auto const file = write({1, 2, 3, 9, 5, 6});
  TokenSequences const read = SequenceFile::open(file, 77, Check::ids_too);
  EXPECT_EQ(read.count(), 2);
  EXPECT_EQ(read.length(), 3);
  EXPECT_THAT(Ids(read[1].begin(), read[1].end()), ElementsAre(9, 5, 6));
  EXPECT_EQ(read.records(), 5);
  EXPECT_EQ(read.tokens(), 8);
  EXPECT_EQ(read.max_id(), 9);
  EXPECT_EQ(read.fingerprint(), 99u);
  TokenSequences const passed = SequenceFile::open(::open(file.c_str(), O_RDONLY), file);
  EXPECT_THAT(Ids(passed[0].begin(), passed[0].end()), ElementsAre(1, 2, 3));
}

TEST_F(SequenceFiles, TheMappingOutlivesTheFile) {
  auto const file = write({1, 2, 3});
  TokenSequences const read = SequenceFile::open(file, 77, Check::header);
  std::filesystem::remove(file);
  EXPECT_THAT(Ids(read[0].begin(), read[0].end()), ElementsAre(1, 2, 3));
}

TEST_F(SequenceFiles, AnotherRequestAndDamageAreErrors) {
  auto const file = write({1, 2, 3});
  EXPECT_THAT(open_error(file, 78), HasSubstr("another text, tokenizer or block size"));
  std::fstream(file, std::ios::in | std::ios::out | std::ios::binary).seekp(97).put('x');
  EXPECT_THAT(open_error(file), HasSubstr("its ids do not match their checksum"));
  std::filesystem::resize_file(file, 100);
  EXPECT_THAT(open_error(file), HasSubstr("cut short"));
  std::filesystem::resize_file(file, 10);
  EXPECT_THAT(open_error(file), HasSubstr("has only 10 bytes"));
}

TEST_F(SequenceFiles, WithoutCommitNoFileRemains) {
  {
    SequenceWriter out(folder_.directory() / "b.tsrb", 3);
    out.append(Ids{1, 2, 3});
  }
  EXPECT_TRUE(std::filesystem::is_empty(folder_.directory()));
}

}  // namespace
}  // namespace tessera::data
