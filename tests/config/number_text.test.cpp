#include "detail/number_text.hpp"

#include <gtest/gtest.h>

namespace tessera::config::detail {
namespace {

TEST(NumberText, IsReadCompletelyOrNotAtAll) {
  EXPECT_EQ(number_from("12"), ConfigTree(12));
  EXPECT_EQ(number_from("+3"), ConfigTree(3));
  EXPECT_EQ(number_from("-1.5e3"), ConfigTree(-1500.0));
  EXPECT_FALSE(number_from("5e8").is_null());
  for (char const* text : {"", "+", "2x", "0x10", " 1", "1 ", "one"})
    EXPECT_TRUE(number_from(text).is_null()) << text;
}

}  // namespace
}  // namespace tessera::config::detail
