#include "launch/convert.hpp"

#include <gtest/gtest.h>

#include <cmath>

#include "tessera/core/random.hpp"

namespace tessera::kernels::detail {
namespace {

TEST(Convert, TheDevicesFormLoadsEveryHalfWithTheBitsOfTheHosts) {
  for (std::uint32_t bits = 0; bits < 0x10000u; ++bits) {
    float16 half;
    half.bits = static_cast<std::uint16_t>(bits);
    ASSERT_EQ(std::bit_cast<std::uint32_t>(load_by_instruction(half)),
              std::bit_cast<std::uint32_t>(load(half)))
        << "half 0x" << std::hex << bits;
  }
}

void expect_same_store(float value) {
  float16 host, device;
  store(host, value);
  store_by_instruction(device, value);
  ASSERT_EQ(device.bits, host.bits) << value;
}

TEST(Convert, TheDevicesFormStoresWithTheBitsOfTheHosts) {
  Philox const random{1, 2};
  for (std::uint64_t i = 0; i < 250'000; ++i)
    for (std::uint32_t const bits : random(i).v) expect_same_store(std::bit_cast<float>(bits));
  for (std::uint32_t bits = 0; bits < 0x7C00u; ++bits) {  // every half, and the ties between them
    float16 half, next;
    half.bits = static_cast<std::uint16_t>(bits);
    next.bits = static_cast<std::uint16_t>(bits + 1);
    float const value = half, tie = next.bits == 0x7C00u ? 65520.0f : (value + float(next)) / 2.0f;
    for (float const x : {value, tie, std::nextafter(tie, 0.0f), std::nextafter(tie, 1e9f)}) {
      expect_same_store(x);
      expect_same_store(-x);
    }
  }
  for (float const x : {std::nanf(""), -std::nanf(""), HUGE_VALF, -HUGE_VALF}) expect_same_store(x);
}

TEST(Convert, KeepsTheSignOfNan) {
  float16 half;
  store_by_instruction(half, std::copysign(std::nanf(""), -1.0f));
  EXPECT_EQ(half.bits, 0xFE00u);
  EXPECT_TRUE(std::signbit(load_by_instruction(half)));
}

}  // namespace
}  // namespace tessera::kernels::detail
