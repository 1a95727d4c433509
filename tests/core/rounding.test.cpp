#include "tessera/core/rounding.hpp"

#include <gtest/gtest.h>

#include <cstddef>
#include <cstdint>

namespace tessera {
namespace {

TEST(Rounding, AgreesWithCountingUpwards) {
  for (std::int64_t value = 0; value <= 40; ++value)
    for (std::int64_t size = 1; size <= 20; ++size) {
      std::int64_t parts = 0, multiple = 0;
      for (; multiple < value; multiple += size) ++parts;
      EXPECT_EQ(ceil_divide(value, size), parts) << value << " in parts of " << size;
      EXPECT_EQ(round_up(value, size), multiple) << value << " to a multiple of " << size;
    }
}

TEST(Rounding, KeepsTheTypeOfTheValue) {
  static_assert(round_up(std::size_t{4097}, 4096) == std::size_t{8192});
  static_assert(std::is_same_v<decltype(ceil_divide(7, std::int8_t{2})), int>);
  EXPECT_EQ(round_up((std::int64_t{1} << 40) + 1, 2 << 20), (std::int64_t{1} << 40) + (2 << 20));
}

}  // namespace
}  // namespace tessera
