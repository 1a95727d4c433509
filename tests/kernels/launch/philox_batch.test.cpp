#include "launch/philox_batch.hpp"

#include <gtest/gtest.h>

namespace tessera::kernels::detail {
namespace {

TEST(PhiloxBatch, EqualsTheScalarGenerator) {
  Philox const random{0x0123456789ABCDEFull, 0xFEDCBA9876543210ull};
  for (std::uint64_t first : {0ull, 5ull, 0xFFFFFFF9ull, 0x1FFFFFFFFull}) {
    std::uint32_t bits[philox_capacity(4 * 37)];
    philox_batch(random, first, 37, bits);
    for (std::uint64_t b = 0; b < 37; ++b) {
      Philox::Block const want = random(first + b);
      for (std::uint64_t k = 0; k < 4; ++k)
        ASSERT_EQ(bits[4 * b + k], want.v[k]) << "counter " << first + b;
    }
  }
}

}  // namespace
}  // namespace tessera::kernels::detail
