#include "elementwise/dropout.hpp"

#include <gtest/gtest.h>

#include "attention/mask_key.hpp"

namespace tessera::kernels::detail {
namespace {

TEST(DropoutFactors, DoNotDependOnWhereARangeBegins) {
  DropoutFactors const factors(Dropout{0.3f, 11, 5, 1000003});
  Philox const random{11, 5};
  for (std::uint64_t begin = 0; begin < 9; ++begin) {
    for (int count : {1, 2, 3, 5, 64, 255, 256}) {
      float out[256];
      factors.fill(begin, count, out);
      for (int i = 0; i < count; ++i) {
        bool const dropped = random.uniform(1000003 + begin + static_cast<std::uint64_t>(i)) < 0.3f;
        ASSERT_EQ(out[i], dropped ? 0.0f : factors.keep) << begin << " + " << i;
      }
    }
  }
}

TEST(DropoutFactors, FollowThePlaceInMemory) {
  DropoutPlace place;
  Dropout const drop{.p = 0.4f,
                     .seed = 7,
                     .stream = 3,
                     .first_element = 2,
                     .place = &place,
                     .elements_per_row = 5};
  DropoutFactors const factors(drop);
  for (DropoutPlace const now :
       {DropoutPlace{0, 0}, {16, 0}, {0, 3}, {std::uint64_t{9} << 24, 7}}) {
    place = now;
    Dropout const there{0.4f, 7, 3 + now.stream, 2 + 5 * now.first_row};
    DropoutFactors const expected(there);
    float a[16], b[16];
    factors.fill(9, 13, a);
    expected.fill(9, 13, b);
    for (int i = 0; i < 13; ++i) ASSERT_EQ(a[i], b[i]);
    factors.pack(4, a);
    expected.pack(4, b);
    for (int i = 0; i < 16; ++i) ASSERT_EQ(a[i], b[i]);
    ASSERT_EQ(factors.factor(11), expected.factor(11));
    ASSERT_EQ(mask_key(drop), mask_key(there));
  }
}

TEST(DropoutFactors, CertainDropIsZeroNotNan) {
  float out[4];
  DropoutFactors(Dropout{1.0f, 1, 1, 0}).fill(0, 4, out);
  for (float f : out) EXPECT_EQ(f, 0.0f);
}

TEST(DropoutFactors, OneAndPackEqualTheFilledRange) {
  for (float p : {0.0f, 0.1f, 0.5f, 1.0f})
    for (std::uint64_t first : {0ull, 1ull, 2ull, 3ull, 0xFFFFFFFDull}) {
      DropoutFactors const factors(Dropout{p, 7, 8, first});
      float filled[64];
      factors.fill(0, 64, filled);
      for (std::uint64_t i = 0; i < 64; ++i)
        ASSERT_EQ(factors.factor(i), filled[i]) << p << " " << i;
      for (std::uint64_t i = 0; i + 8 <= 64; ++i) {
        float pack[8];
        factors.pack(i, pack);
        for (std::uint64_t k = 0; k < 8; ++k) ASSERT_EQ(pack[k], filled[i + k]) << p << " " << i;
      }
    }
}

}  // namespace
}  // namespace tessera::kernels::detail
