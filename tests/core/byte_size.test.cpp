#include "tessera/core/text.hpp"

#include <gtest/gtest.h>

#include "tessera/core/error.hpp"

namespace tessera {
namespace {

TEST(ParseSize, KnowsTheUsualUnits) {
  EXPECT_EQ(parse_size("5GB"), 5'000'000'000);
  EXPECT_EQ(parse_size("2GiB"), std::int64_t{2} << 30);
  EXPECT_EQ(parse_size("1.5 mb"), 1'500'000);
  EXPECT_EQ(parse_size("4096"), 4096);
  for (auto const* bad : {"", "GB", "5XB", "-1GB", "0", "nan", "1e300GB"})
    EXPECT_THROW(parse_size(bad), UsageError) << bad;
}

}  // namespace
}  // namespace tessera
