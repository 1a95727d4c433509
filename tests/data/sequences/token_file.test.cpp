#include "sequences/sequence_file.hpp"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <cstring>

#include "error_of.hpp"
#include "scratch_files.hpp"

namespace tessera::data::detail {
namespace {

using ::testing::ElementsAre;
using ::testing::HasSubstr;

template <class... Values>
std::string bytes_of(Values... values) {
  std::string out;
  (out.append(reinterpret_cast<char const*>(&values), sizeof values), ...);
  return out;
}

std::string llmc_header(std::int32_t magic, std::int32_t version, std::int32_t tokens) {
  std::string out = bytes_of(magic, version, tokens);
  out.resize(1024);
  return out;
}

/// Documents of 2 and 1 tokens, as Megatron's tools write them.
std::string megatron_index(std::uint8_t type, std::int64_t width) {
  return std::string("MMIDIDX\0\0", 9) +
         bytes_of(std::uint64_t{1}, type, std::uint64_t{2}, std::uint64_t{3}, std::int32_t{2},
                  std::int32_t{1}, std::int64_t{0}, 2 * width, std::int64_t{0}, std::int64_t{1},
                  std::int64_t{2});
}

std::vector<std::int32_t> read(TokenFile const& file) {
  std::vector<std::int32_t> out(static_cast<std::size_t>(file.tokens()));
  file.read(0, out);
  return out;
}

TEST(TokenFile, ReadsThoseOfLlmc) {
  ScratchFiles const folder;
  TokenFile const gpt2(folder.write(
      "a.bin", llmc_header(20240520, 1, 3) +
                   bytes_of(std::uint16_t{7}, std::uint16_t{50256}, std::uint16_t{65535})));
  EXPECT_THAT(read(gpt2), ElementsAre(7, 50256, 65535));
  std::vector<std::int32_t> part(1);
  gpt2.read(1, part);
  EXPECT_THAT(part, ElementsAre(50256));
  TokenFile const llama(folder.write(
      "b.bin", llmc_header(20240801, 7, 2) + bytes_of(std::uint32_t{128000}, std::uint32_t{1})));
  EXPECT_THAT(read(llama), ElementsAre(128000, 1));
}

TEST(TokenFile, ReadsThoseOfMegatron) {
  ScratchFiles const folder;
  folder.write("a.idx", megatron_index(8, 2));
  std::string const file =
      folder.write("a.bin", bytes_of(std::uint16_t{7}, std::uint16_t{8}, std::uint16_t{60000}));
  for (std::string const& named : {file, (folder.directory() / "a.idx").string()}) {
    TokenFile const tokens(named);
    EXPECT_THAT(read(tokens), ElementsAre(7, 8, 60000));
    EXPECT_EQ(tokens.documents(), 2);
  }
  folder.write("b.idx", megatron_index(4, 4));
  TokenFile const wide(
      folder.write("b.bin", bytes_of(std::int32_t{100000}, std::int32_t{8}, std::int32_t{9})));
  EXPECT_THAT(read(wide), ElementsAre(100000, 8, 9));
}

TEST(TokenFile, NamesWhatIsWrong) {
  ScratchFiles const folder;
  auto const write = [&](std::string const& bin, std::string const& index) {
    std::filesystem::remove(folder.directory() / "a.idx");
    if (!index.empty()) folder.write("a.idx", index);
    return folder.write("a.bin", bin);
  };
  std::string const three = bytes_of(std::uint16_t{7}, std::uint16_t{8}, std::uint16_t{9});
  EXPECT_THAT(error_of<ConfigError>([&] { TokenFile(write(three, "")); }),
              HasSubstr("a.bin is neither llm.c's"));
  EXPECT_THAT(error_of<DataError>([&] { TokenFile(write("", "")); }), HasSubstr("is empty"));
  EXPECT_THAT(
      error_of<DataError>([&] { TokenFile(write(llmc_header(20240520, 1, 4) + three, "")); }),
      HasSubstr("names 4 tokens of 2 bytes, and the file has 1030 bytes"));
  std::string const index = megatron_index(8, 2);
  for (std::size_t size = 1; size < index.size(); size += 5)
    EXPECT_THAT(error_of<DataError>([&] { TokenFile(write(three, index.substr(0, size))); }),
                HasSubstr("a.idx"));
  EXPECT_THAT(error_of<DataError>([&] { TokenFile(write(three + "x", index)); }),
              HasSubstr("a.bin has 7 bytes, and"));
  EXPECT_THAT(error_of<DataError>([&] { TokenFile(write(three, megatron_index(7, 2))); }),
              HasSubstr("names the type 7"));
  EXPECT_THAT(error_of<DataError>([&] { TokenFile(write(three, megatron_index(8, 4))); }),
              HasSubstr("sequence 1 with 1 tokens begins at byte 8 instead of 4"));
  TokenFile const negative(
      write(bytes_of(std::int32_t{1}, std::int32_t{-2}, std::int32_t{3}), megatron_index(4, 4)));
  EXPECT_THAT(error_of<DataError>([&] { read(negative); }), HasSubstr("token 1 is -2"));
  EXPECT_THAT(error_of<IoError>([&] { TokenFile(folder.directory() / "none.bin"); }),
              HasSubstr("none.bin: No such file"));
}

}  // namespace
}  // namespace tessera::data::detail
