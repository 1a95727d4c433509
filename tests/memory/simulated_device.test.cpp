/// A device of host memory: bounded, with streams that run by themselves and a link that takes
/// time.
#include "tessera/memory/device.hpp"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <chrono>
#include <cstring>
#include <vector>

#include "tessera/core/error.hpp"
#include "tessera/memory/buffer.hpp"
#include "tessera/memory/limits.hpp"

namespace tessera::memory {
namespace {

using namespace std::chrono_literals;
using ::testing::AllOf;
using ::testing::HasSubstr;

/// One device for all tests: a process has one.
struct SimulatedDevices : ::testing::Test {
  static constexpr std::size_t capacity = std::size_t{64} << 20;
  static constexpr double bytes_per_second = 400e6;
  static void SetUpTestSuite() {
    simulate_device({.memory_bytes = capacity, .link_bytes_per_second = bytes_per_second});
    limit_memory(MemorySpace::device, capacity);
  }
};

TEST_F(SimulatedDevices, AreTheDeviceOfTheProcess) {
  EXPECT_TRUE(device_is_simulated());
  EXPECT_EQ(find_devices().count, 1);
  EXPECT_EQ(describe_device(0).total_bytes, capacity);
  auto const stream = make_stream_queue("compute");
  EXPECT_EQ(memory_space_of(*stream), MemorySpace::device);
  EXPECT_FALSE(on_gpu(*stream));
}

TEST_F(SimulatedDevices, HaveMemoryUpToTheirBound) {
  Buffer const weights("weights", Purpose::weights, std::size_t{40} << 20, MemorySpace::device);
  EXPECT_TRUE(on_device(weights.data()));
  EXPECT_EQ(free_device_bytes(), std::size_t{24} << 20);
  std::string message;
  try {
    Buffer("activations", Purpose::activations, std::size_t{32} << 20, MemorySpace::device);
  } catch (OutOfMemoryError const& e) {
    message = e.what();
  }
  EXPECT_THAT(message,
              AllOf(HasSubstr("32.0 MiB for activations on the device"),
                    HasSubstr("24.0 MiB of its 64.0 MiB are free"), HasSubstr("weights 40.0 MiB"),
                    HasSubstr("offload_optimizer"), HasSubstr("raise --device_memory")));
}

TEST_F(SimulatedDevices, FreedMemoryIsZeroWhenItIsUsedAgain) {
  auto const stream = make_stream_queue("compute");
  for (int i = 0; i < 3; ++i) {
    Buffer const buffer("b", Purpose::data, std::size_t{60} << 20, MemorySpace::device);
    std::vector<unsigned char> seen(4096, 1);
    copy(*stream, seen.data(), buffer.data(), seen.size());
    stream->record().wait("test", 30s);
    EXPECT_EQ(seen, std::vector<unsigned char>(4096, 0));
    stream->submit([data = buffer.data()] { std::memset(data, 7, 4096); });
  }
}

TEST_F(SimulatedDevices, CopyBetweenAllSpacesInStreamOrder) {
  auto const stream = make_stream_queue("compute");
  Buffer const there("there", Purpose::data, 8192, MemorySpace::device),
      pinned("pinned", Purpose::data, 8192, MemorySpace::pinned);
  std::vector<unsigned char> sent(8192, 7), received(8192, 0);
  copy(*stream, there.data(), sent.data(), sent.size());
  std::fill(sent.begin(), sent.end(), 9);  // it has been read
  copy(*stream, pinned.data(), there.data(), sent.size());
  copy(*stream, received.data(), pinned.data(), sent.size());
  EXPECT_EQ(received, std::vector<unsigned char>(8192, 7)) << "pageable memory is written";
}

TEST_F(SimulatedDevices, TheLinkTakesItsTimeInEachDirection) {
  auto const in = make_stream_queue("in"), out = make_stream_queue("out");
  std::size_t const bytes = std::size_t{20} << 20;
  Buffer const a("a", Purpose::data, bytes, MemorySpace::device),
      b("b", Purpose::data, bytes, MemorySpace::device),
      x("x", Purpose::data, bytes, MemorySpace::pinned),
      y("y", Purpose::data, bytes, MemorySpace::pinned);
  auto const start = std::chrono::steady_clock::now();
  copy(*in, a.data(), x.data(), bytes);
  copy(*out, y.data(), b.data(), bytes);
  in->record().wait("test", 30s);
  out->record().wait("test", 30s);
  std::chrono::duration<double> const both = std::chrono::steady_clock::now() - start;
  EXPECT_GE(both.count(), static_cast<double>(bytes) / bytes_per_second);
}

TEST_F(SimulatedDevices, HaveNoGraphs) {
  auto const stream = make_stream_queue("compute", StreamPriority::normal, GraphMode::capture);
  stream->run_as_graph("shape", [] {});
  EXPECT_THROW(stream->run_as_graph("shape", [] {}), InternalError);
}

}  // namespace
}  // namespace tessera::memory
