#include "detail/half_values.hpp"

#include <gtest/gtest.h>

#include <vector>

#include "fake_device.hpp"
#include "tessera/memory/device.hpp"

namespace tessera::zero::detail {
namespace {

TEST(HalfValues, AreReadAndWrittenInBothMemorySpaces) {
  test::FakeDevice device;
  for (auto const space : {memory::MemorySpace::host, memory::MemorySpace::device}) {
    bool const on_device = space == memory::MemorySpace::device;
    auto const queue =
        on_device ? memory::make_stream_queue("stream") : memory::make_inline_queue("inline");
    memory::Buffer const there("values", memory::Purpose::optimizer_state, 100 * sizeof(bfloat16),
                               space);
    HalfValues values(*queue, space, Dtype::bf16, 100);
    std::vector<float> sent(100), received(100, -1.0f);
    for (std::size_t i = 0; i < sent.size(); ++i) sent[i] = 0.1f * static_cast<float>(i);
    values.write(there.data(), sent.data(), 100);
    values.read(received.data(), there.data(), 60);
    for (std::size_t i = 0; i < 100; ++i)
      EXPECT_EQ(received[i], i < 60 ? static_cast<float>(bfloat16(sent[i])) : -1.0f) << i;
  }
}

}  // namespace
}  // namespace tessera::zero::detail
