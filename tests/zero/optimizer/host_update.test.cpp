/// Tiles that the host updates while earlier ones return to the device.
#include "optimizer/host_update.hpp"

#include <algorithm>
#include <cstring>

#include "detail_fixture.hpp"
#include "engine_settings.hpp"
#include "fake_device.hpp"
#include "tessera/memory/stream_queue.hpp"

namespace tessera::zero::detail {
namespace {

EngineConfig config_of(int buffers) {
  EngineConfig c;
  c.partition = zero::partition_of(1);
  c.dtype = Dtype::fp32;
  test::states_of(c).optimizer_offload = {.tile_numel = 1, .buffer_count = buffers};
  return c;
}

/// Every number of buffers: fewer than tiles, one for each, more.
TEST(HostUpdate, ReturnsWhatTheWorkHasWrittenTileByTile) {
  auto& device = test::FakeDevice::of_process();
  device.jitter_us = 50;
  std::vector<memory::UnitSpec> const units{{"a", {test::parameter("w", {3000})}},
                                            {"b", {test::parameter("w", {70})}},
                                            {"c", {test::parameter("w", {2048})}}};
  for (int buffers : {1, 2, 6, 9}) {
    EngineConfig const config = config_of(buffers);
    auto const comm = comm::make_loopback();
    auto const compute = memory::make_stream_queue("compute");
    PartitionPlan const plan(units, 1);
    auto const rules = rules_for(config, 1, memory::MemorySpace::device);
    StoreContext const context{config, plan, {&plan, first_rank, true}, *comm, *compute};
    auto const store = make_resident_weights(context);
    auto const optimizer = optim::make_optimizer(config.optimizer);
    HostUpdate update(context, Offload(context, rules, *optimizer), *store);
    ASSERT_EQ(update.tiles().size(), 6u);
    for (int round = 1; round <= 3; ++round) {
      auto const work = [&](memory::Queue& queue, std::size_t tile) {
        queue.submit([&update, tile, round] {
          auto* const out = static_cast<float*>(update.weights_of(tile));
          for (std::int64_t i = 0; i < update.tiles()[tile].numel; ++i)
            out[i] = static_cast<float>(10000 * round + 1000 * static_cast<int>(tile) + i % 1000);
        });
      };
      for (UnitIndex u = first_unit; u < plan.end_unit(); ++u) update.run(u, work);
      compute->record().wait("test", std::chrono::seconds(30));
      std::vector<float> seen(static_cast<std::size_t>(plan.padded_count()));
      int wrong = 0;
      for (std::size_t t = 0; t < update.tiles().size(); ++t) {
        auto const& tile = update.tiles()[t];
        std::memcpy(seen.data(), static_cast<float const*>(store->region(tile.unit)) + tile.begin,
                    static_cast<std::size_t>(tile.numel) * sizeof(float));
        for (std::int64_t i = 0; i < tile.numel; ++i)
          wrong += seen[static_cast<std::size_t>(i)] !=
                   static_cast<float>(10000 * round + 1000 * static_cast<int>(t) + i % 1000);
      }
      EXPECT_EQ(wrong, 0) << buffers << " buffers, round " << round;
    }
  }
  device.jitter_us = 0;
}

/// With a buffer for each tile: the weights stay as they are until the tiles are returned.
TEST(HostUpdate, KeepsWhatHasStartedUntilItIsReturned) {
  test::FakeDevice::of_process();
  EngineConfig config = config_of(1);
  test::states_of(config).optimizer_offload->delay_from = 1;
  auto const comm = comm::make_loopback();
  auto const compute = memory::make_stream_queue("compute");
  PartitionPlan const plan(
      {{"a", {test::parameter("w", {3000})}}, {"b", {test::parameter("w", {70})}}}, 1);
  StoreContext const context{config, plan, {&plan, first_rank, true}, *comm, *compute};
  auto const store = make_resident_weights(context);
  auto const optimizer = optim::make_optimizer(config.optimizer);
  HostUpdate update(context,
                    Offload(context, rules_for(config, 1, memory::MemorySpace::device), *optimizer),
                    *store);
  std::vector<std::size_t> order;
  auto* const weights = static_cast<float*>(store->region(first_unit));
  for (float round = 1.0f; round <= 2.0f; ++round) {
    order.clear();
    update.start_all([&](memory::Queue& queue, std::size_t tile) {
      order.push_back(tile);
      queue.submit([&update, tile, round] {
        std::fill_n(static_cast<float*>(update.weights_of(tile)), update.tiles()[tile].numel,
                    10.0f * round + static_cast<float>(tile));
      });
    });
    update.wait();
    EXPECT_EQ(order, (std::vector<std::size_t>{3, 2, 1, 0})) << "the first gradients last";
    EXPECT_NE(weights[0], 10.0f * round);
    for (UnitIndex u = first_unit; u < plan.end_unit(); ++u) update.run(u, {});
    compute->record().wait("test", std::chrono::seconds(30));
    EXPECT_EQ(weights[0], 10.0f * round);
    EXPECT_EQ(weights[2999], 10.0f * round + 2);
    EXPECT_EQ(static_cast<float*>(store->region(UnitIndex(1)))[69], 10.0f * round + 3);
  }
}

TEST(HostUpdate, PassesTheErrorOfTheWorkOn) {
  test::FakeDevice::of_process();
  EngineConfig const config = config_of(2);
  auto const comm = comm::make_loopback();
  auto const compute = memory::make_stream_queue("compute");
  PartitionPlan const plan(test::two_units(), 1);
  StoreContext const context{config, plan, {&plan, first_rank, true}, *comm, *compute};
  auto const store = make_resident_weights(context);
  auto const optimizer = optim::make_optimizer(config.optimizer);
  HostUpdate update(context,
                    Offload(context, rules_for(config, 1, memory::MemorySpace::device), *optimizer),
                    *store);
  EXPECT_THROW(update.run(first_unit,
                          [](memory::Queue& queue, std::size_t) {
                            queue.submit([] { throw IoError("the drive is gone"); });
                          }),
               IoError);
}

}  // namespace
}  // namespace tessera::zero::detail
