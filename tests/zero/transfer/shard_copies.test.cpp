#include "transfer/shard_copies.hpp"

#include <gtest/gtest.h>

#include <cstring>

#include "fake_device.hpp"
#include "tessera/memory/buffer.hpp"
#include "tessera/memory/device.hpp"

namespace tessera::zero::detail {
namespace {

using memory::MemorySpace;

memory::Buffer values(std::size_t bytes, MemorySpace space) {
  return {"values", memory::Purpose::optimizer_state, bytes, space};
}

/// To the state and back, of two shards of a device and one of the host.
void expect_round_trip(Dtype dtype, std::vector<float> const& given) {
  test::FakeDevice::of_process();
  auto const queue = memory::make_stream_queue("compute");
  auto const numel = static_cast<std::int64_t>(given.size());
  std::vector<memory::Buffer> states;
  for (auto space : {MemorySpace::device, MemorySpace::host, MemorySpace::device})
    states.push_back(values(given.size() * size_of(dtype), space));
  std::vector<float> host;
  for (int i = 0; i < 3; ++i) host.insert(host.end(), given.begin(), given.end());
  host[0] = 8.0f;  // value of the first shard only
  auto const wanted = host;
  std::vector<ShardCopy> copies;
  for (std::size_t i = 0; i < states.size(); ++i)
    copies.push_back(
        {host.data() + i * given.size(), {states[i].data(), dtype, {numel}}, states[i].space()});
  copy_shards(*queue, copies, ShardDirection::to_state);
  std::fill(host.begin(), host.end(), -1.0f);
  copy_shards(*queue, copies, ShardDirection::to_host);
  EXPECT_EQ(host, wanted);
}

TEST(ShardCopies, KeepFp32Values) { expect_round_trip(Dtype::fp32, {0.1f, -2.7f, 1e-30f}); }

TEST(ShardCopies, ConvertValuesOf16Bits) {
  expect_round_trip(Dtype::bf16, {0.5f, -3.0f, 256.0f});
  expect_round_trip(Dtype::fp16, {0.5f, -3.0f, 2048.0f});
}

TEST(ShardCopies, RoundToTheShard) {
  test::FakeDevice::of_process();
  auto const queue = memory::make_stream_queue("compute");
  auto const state = values(size_of(Dtype::bf16), MemorySpace::device);
  float value = 1.0f + 1.0f / 1024;  // between two values of bf16
  std::vector<ShardCopy> const copies{
      {&value, {state.data(), Dtype::bf16, {1}}, MemorySpace::device}};
  copy_shards(*queue, copies, ShardDirection::to_state);
  copy_shards(*queue, copies, ShardDirection::to_host);
  EXPECT_EQ(value, 1.0f);
}

}  // namespace
}  // namespace tessera::zero::detail
