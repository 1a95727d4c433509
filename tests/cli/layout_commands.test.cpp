#include "commands.hpp"

#include <gtest/gtest.h>

#include "tessera/core/error.hpp"

namespace tessera::cli {
namespace {

checkpoint::ConvertOptions with_compression(std::string const& text) {
  checkpoint::ConvertOptions options;
  set_compression(options, text);
  return options;
}

TEST(ConvertOptions, CompressionHasALevel) {
  EXPECT_EQ(with_compression("none").compression, checkpoint::Compression::none);
  EXPECT_EQ(with_compression("gzip").compression, checkpoint::Compression::shuffle_gzip);
  EXPECT_EQ(with_compression("gzip").level, 4);
  EXPECT_EQ(with_compression("gzip:9").level, 9);
  for (char const* text : {"", "zstd", "gzip:", "gzip:x", "gzip:9x", "gzip9", "gzip: 9"})
    EXPECT_THROW(with_compression(text), UsageError) << text;
}

TEST(ConvertOptions, RanksPerFileIsANumberOrAll) {
  auto const ranks = [](std::string const& text) {
    checkpoint::ConvertOptions options;
    set_ranks_per_file(options, text);
    return options.ranks_per_file;
  };
  EXPECT_EQ(ranks(""), 0);
  EXPECT_EQ(ranks("8"), 8);
  EXPECT_EQ(ranks("all"), INT32_MAX);
  for (char const* text : {"0", "-1", "many", "8x", "99999999999"})
    EXPECT_THROW(ranks(text), UsageError) << text;
}

}  // namespace
}  // namespace tessera::cli
