#include "selftest/gpu_test.hpp"

#include <gtest/gtest.h>

#include <algorithm>
#include <optional>
#include <set>
#include <string>

#include "fake_device.hpp"
#include "mpi_test.hpp"
#include "tessera/comm/compose/device_collectives.hpp"
#include "tessera/comm/compose/host_collectives.hpp"
#include "tessera/memory/device.hpp"

namespace tessera::cli {
namespace {

using topology::NodeIndex;

std::optional<GpuReport> report_of_all() {
  auto const& session = test::session();
  auto const comm = comm::make_device(comm::make_mpi(session, std::chrono::seconds(60)),
                                      std::chrono::seconds(60), comm::DeviceTransport::staged);
  auto const queue = memory::make_stream_queue("compute");
  return test_gpus({*queue, *comm, session.nodes(), session.info().host});
}

TEST(GpuTest, FindsNoFaultInAWorkingDevice) {
  test::FakeDevice device;
  device.jitter_us = 100;
  auto const report = report_of_all();
  auto const ranks = static_cast<std::size_t>(test::session().info().world_size);
  ASSERT_EQ(report.has_value(), test::session().info().rank == 0);
  if (!report) return;
  EXPECT_EQ(report->links.size(), ranks * (ranks - 1) / 2);
  for (auto const& link : report->links) {
    EXPECT_EQ(link.wrong_bytes, 0);
    EXPECT_GT(link.bandwidth, 0.0);
  }
  EXPECT_EQ(report->all_gather > 0.0 && report->reduce_scatter > 0.0, ranks > 1);
  ASSERT_EQ(report->gpus.size(), ranks);
  for (auto const& gpu : report->gpus) {
    EXPECT_EQ(gpu.host, test::session().info().host);
    EXPECT_EQ(gpu.model, "fake device");
    EXPECT_GT(gpu.tested_bytes, std::int64_t{1} << 23);
    EXPECT_EQ(gpu.wrong_bytes, 0);
    EXPECT_EQ(gpu.wrong_products, 0);
    EXPECT_GT(std::min({gpu.memory, gpu.products, gpu.to_device, gpu.from_device}), 0.0);
  }
}

/// Changes one byte of what it has copied into its memory for the n-th time.
class BrokenDevice final : public test::FakeDevice {
 public:
  explicit BrokenDevice(int which) : which_(which) {}
  void copy(Stream stream, void* to, void const* from, std::size_t bytes) override {
    FakeDevice::copy(stream, to, from, bytes);
    if (on_device(to) && bytes == last_size_ && ++copies_ == which_)
      call_host(
          stream, [](void* data) { *static_cast<char*>(data) ^= 1; },
          static_cast<char*>(to) + bytes / 2);
    last_size_ = bytes;
  }

 private:
  int which_, copies_ = 0;
  std::size_t last_size_ = 0;
};

TEST(GpuTest, SeesAChangedByteOfTheMemory) {
  BrokenDevice device(25);  // in the last of four rounds over seven pieces
  auto const report = report_of_all();
  if (!report) return;
  for (auto const& gpu : report->gpus) EXPECT_EQ(gpu.wrong_bytes, 1);
  auto const faults = gpu_faults(*report);  // and slow links, where other jobs disturb them
  auto const changed = [](std::string const& fault) {
    return fault.find(": 1 byte of ") != std::string::npos;
  };
  EXPECT_EQ(std::count_if(faults.begin(), faults.end(), changed),
            test::session().info().world_size);
}

std::vector<NodeIndex> nodes_of(std::vector<int> const& numbers) {
  std::vector<NodeIndex> out;
  for (int n : numbers) out.push_back(NodeIndex{n});
  return out;
}

TEST(GpuTest, LinksCoverNodesAndTheRingBetweenThem) {
  for (auto const& nodes : {nodes_of({0}), nodes_of({0, 0, 0}), nodes_of({0, 0, 1, 1}),
                            nodes_of({0, 1, 2}), nodes_of({0, 0, 1, 1, 2, 2, 3, 3})}) {
    std::set<std::pair<int, int>> inside, between;
    for (auto const& round : link_rounds(nodes)) {
      std::set<int> busy;
      for (auto const& link : round) {
        EXPECT_TRUE(busy.insert(link.from).second && busy.insert(link.to).second);
        bool const same =
            nodes[static_cast<std::size_t>(link.from)] == nodes[static_cast<std::size_t>(link.to)];
        EXPECT_EQ(same, link.in_node);
        EXPECT_TRUE((same ? inside : between).insert({link.from, link.to}).second);
      }
    }
    std::set<NodeIndex> const distinct(nodes.begin(), nodes.end());
    std::size_t const per_node = nodes.size() / distinct.size(), count = distinct.size();
    EXPECT_EQ(inside.size(), count * per_node * (per_node - 1) / 2);
    EXPECT_EQ(between.size(), per_node * (count > 2 ? count : count - 1));
  }
}

}  // namespace
}  // namespace tessera::cli
