/// Gradients between the device and the host: values, and the sums of their squares.
#include "gradients/offloaded_gradients.hpp"

#include "detail_fixture.hpp"
#include "engine_settings.hpp"
#include "fake_device.hpp"
#include "tessera/kernels/elementwise/gradient_statistics.hpp"
#include "tessera/memory/stream_queue.hpp"

namespace tessera::zero::detail {
namespace {

struct Gradients {
  explicit Gradients(memory::MemorySpace space, double ratio = 1.0) {
    test::FakeDevice::of_process();
    compute = memory::make_stream_queue("compute");
    config.partition = zero::partition_of(2);
    test::states_of(config).optimizer_offload = {
        .tile_numel = 1024, .buffer_count = 2, .space = space, .ratio = ratio};
    optimizer = optim::make_optimizer(config.optimizer);
    context.emplace(StoreContext{config, plan, {&plan, first_rank, true}, *comm, *compute});
    auto const rules = rules_for(config, 1, memory::MemorySpace::device);
    host.emplace(*context, Offload(*context, rules, *optimizer), Dtype::fp32);
    there = {"gradients", memory::Purpose::gradients,
             static_cast<std::size_t>(plan.padded_count()) * sizeof(float),
             memory::MemorySpace::device};
  }
  float* on_device(UnitIndex unit) const {
    return static_cast<float*>(there.data()) + full_offset(plan, unit);
  }
  std::size_t bytes(UnitIndex unit) const {
    return static_cast<std::size_t>(plan.unit(unit).padded_numel) * sizeof(float);
  }
  /// Values of a unit, written in the order of the compute queue.
  void write(UnitIndex unit, float scale) {
    auto* const out = on_device(unit);
    auto const numel = plan.unit(unit).padded_numel;
    compute->submit([=] {
      for (std::int64_t i = 0; i < numel; ++i) out[i] = scale * static_cast<float>(i % 97 + 1);
    });
  }

  EngineConfig config;
  std::vector<memory::UnitSpec> units{{"a", {test::parameter("w", {20000})}},
                                      {"b", {test::parameter("w", {3000})}}};
  std::unique_ptr<comm::Collectives> comm = comm::make_loopback();
  std::unique_ptr<memory::Queue> compute;
  PartitionPlan plan{units, 1};
  std::unique_ptr<optim::Optimizer> optimizer;
  std::optional<StoreContext> context;
  std::optional<HostGradients> host;
  memory::Buffer there;
};

TEST(HostGradients, LeaveAndComeBackWithTheirSquares) {
  auto& device = test::FakeDevice::of_process();
  device.jitter_us = 40;
  for (auto space : {memory::MemorySpace::pinned, memory::MemorySpace::host}) {
    Gradients g(space);
    std::vector<kernels::GradientRun> runs;
    for (UnitIndex u = first_unit; u < g.plan.end_unit(); ++u) {
      g.write(u, 0.5f);
      g.host->leave(u, g.on_device(u), g.compute->record(), HostGradients::Sums::partial);
      auto const back = g.host->bring(u, g.on_device(u), g.compute->record());
      g.compute->wait(back);
      auto const* const data = g.on_device(u);
      g.compute->submit([=] { EXPECT_EQ(data[96], 48.5f); });
      g.write(u, 1.0f + static_cast<float>(static_cast<int>(u)));
      g.host->leave(u, g.on_device(u), g.compute->record(), HostGradients::Sums::complete);
      runs.push_back({g.on_device(u), g.plan.unit(u).shard_numel});
    }
    memory::Buffer const sums("sums", memory::Purpose::workspace, 4 * sizeof(double),
                              memory::MemorySpace::device);
    auto* const out = static_cast<double*>(sums.data());
    g.host->total(*g.compute, out);
    kernels::gradient_statistics(*g.compute, out + 2, runs, Dtype::fp32);
    g.compute->record().wait("test", compute_deadline);
    g.host->synchronize();
    EXPECT_EQ(out[0], out[2]);
    EXPECT_EQ(out[1], out[3]);
    auto const* const b = static_cast<float const*>(g.host->region(UnitIndex(1)));
    EXPECT_EQ(b[0], 2.0f);
    EXPECT_EQ(b[2999], 2.0f * (2999 % 97 + 1));
    EXPECT_EQ(g.host->pinned_bytes() > 0, space == memory::MemorySpace::pinned);
  }
  device.jitter_us = 0;
}

TEST(HostGradients, OfUnitsThatStayAreOnlyMeasured) {
  Gradients g(memory::MemorySpace::pinned, 0.5);
  EXPECT_TRUE(g.host->has(first_unit));
  EXPECT_FALSE(g.host->has(UnitIndex(1)));
  EXPECT_EQ(g.host->bytes(), g.bytes(first_unit));
  EXPECT_EQ(g.host->end(), g.plan.unit(first_unit).padded_numel);
}

}  // namespace
}  // namespace tessera::zero::detail
