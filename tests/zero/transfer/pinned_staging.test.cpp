#include "transfer/pinned_staging.hpp"

#include <gtest/gtest.h>

#include <algorithm>
#include <vector>

#include "fake_device.hpp"
#include "tessera/memory/device.hpp"

namespace tessera::zero::detail {
namespace {

using memory::MemorySpace;

/// Values that bf16 holds, different in neighbors and in pieces.
std::vector<float> numbers(std::int64_t numel) {
  std::vector<float> out(static_cast<std::size_t>(numel));
  for (std::size_t i = 0; i < out.size(); ++i)
    out[i] = static_cast<float>(static_cast<int>(i % 251) - 125);
  return out;
}

void expect_round_trip(Dtype dtype, std::int64_t numel) {
  test::FakeDevice device;
  device.jitter_us = 200;
  auto const queue = memory::make_stream_queue("compute");
  memory::Buffer const there("values", memory::Purpose::optimizer_state,
                             static_cast<std::size_t>(numel) * size_of(dtype), MemorySpace::device);
  memory::TensorView const values(there.data(), dtype, {numel});
  auto const wanted = numbers(numel);
  PinnedStaging staging(*queue, dtype, numel);
  auto sent = wanted;
  staging.write(values, sent.data());
  std::fill(sent.begin(), sent.end(), 99.0f);  // write() has read them
  std::vector<float> received(wanted.size(), -1.0f);
  staging.read(received.data(), values);
  staging.finish();
  EXPECT_EQ(received, wanted);
  EXPECT_EQ(device.costs().pageable_copies, 0);
}

TEST(PinnedStaging, CopiesLessThanAPiece) { expect_round_trip(Dtype::fp32, 1000); }

TEST(PinnedStaging, CopiesPiecesAndARest) {
  expect_round_trip(Dtype::fp32, 3 * PinnedStaging::piece_numel + 17);
}

TEST(PinnedStaging, ConvertsValuesOf16Bits) {
  expect_round_trip(Dtype::bf16, 2 * PinnedStaging::piece_numel + 1);
  expect_round_trip(Dtype::fp16, 5);
}

}  // namespace
}  // namespace tessera::zero::detail
