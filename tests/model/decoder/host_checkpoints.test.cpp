/// Activation checkpoints of a device in host memory: the bits of the pass that keeps them on the
/// device, whatever the timing of the streams, with less memory on the device.
#include "decoder/host_checkpoints.hpp"

#include <gtest/gtest.h>

#include "fake_device.hpp"
#include "gpt2_case.hpp"
#include "tessera/memory/limits.hpp"

namespace {

using namespace tessera;
using test::FakeDevice;

FakeDevice& device() { return FakeDevice::of_process(); }

constexpr std::int64_t rows = 3, sequence = 32, width = 48;

ConfigTree gpt2(std::int64_t layers) {
  ConfigTree config = model::default_config("gpt2");
  config.set("n_layer", layers).set("n_embd", width).set("n_head", 3).set("vocab_size", 101);
  config.set("n_positions", 64);
  for (char const* key : {"resid_pdrop", "embd_pdrop", "attn_pdrop"}) config.set(key, 0.1);
  return config;
}

struct OnDevice : test::Bench {
  OnDevice(std::int64_t layers, Dtype dtype) : Bench(gpt2(layers), dtype) {
    device();
    queue = memory::make_stream_queue("compute");
  }
  double pass(model::PassSettings settings, std::int64_t batch_rows = rows) {
    std::vector<std::int32_t> tokens(static_cast<std::size_t>(batch_rows * sequence));
    for (std::size_t i = 0; i < tokens.size(); ++i) tokens[i] = static_cast<std::int32_t>(i % 97);
    settings.dropout_seed = 3;
    settings.recompute = Recompute::block;
    return train({tokens.data(), batch_rows, sequence}, settings);
  }
  std::vector<std::vector<float>> gradients() const {
    std::vector<std::vector<float>> out;
    params.for_each([&](int unit, std::size_t p, memory::ParameterSpec const&) {
      out.push_back(params.gradient_values(unit, p));
    });
    return out;
  }
};

TEST(HostCheckpoints, GiveTheBitsOfCheckpointsOnTheDevice) {
  for (std::int64_t const layers : {1, 2, 3, 4, 7})
    for (Dtype const dtype : {Dtype::fp32, Dtype::bf16}) {
      OnDevice stays(layers, dtype), leaves(layers, dtype);
      for (unsigned const jitter : {0u, 60u})
        for (std::int64_t const batch_rows : {rows, std::int64_t{1}, rows + 2}) {
          device().jitter_us = jitter;
          double const ours = leaves.pass({.cpu_checkpointing = true}, batch_rows);
          device().jitter_us = 0;
          EXPECT_EQ(ours, stays.pass({}, batch_rows)) << layers << " layers";
          EXPECT_EQ(leaves.gradients(), stays.gradients()) << layers << " layers";
          for (auto* const bench : {&stays, &leaves}) bench->params.begin_step();
        }
    }
}

/// Oracle: of L + 1 streams three stay, and L - 2 inputs leave.
TEST(HostCheckpoints, TakeTheirMemoryOnTheHost) {
  std::int64_t const layers = 12;
  model::PlannedPass plan{.rows = rows, .sequence = sequence, .recompute = Recompute::block};
  OnDevice bench(layers, Dtype::fp32);
  auto const stays = bench.lm->activation_bytes(plan, memory::MemorySpace::device);
  EXPECT_EQ(bench.lm->host_checkpoint_bytes(plan), 0u);
  plan.cpu_checkpointing = true;
  auto const leaves = bench.lm->activation_bytes(plan, memory::MemorySpace::device);
  std::size_t const stream = rows * sequence * width * sizeof(float);
  EXPECT_EQ(stays - leaves, (layers + 1 - 3) * stream);
  EXPECT_EQ(bench.lm->host_checkpoint_bytes(plan), (layers - 2) * stream);
  plan.recompute = Recompute::none;
  EXPECT_EQ(bench.lm->host_checkpoint_bytes(plan), 0u);

  auto const pinned = memory::memory_use().pinned.now;
  bench.pass({.cpu_checkpointing = true});
  auto const after = memory::memory_use().pinned.now;
  EXPECT_GE(after - pinned, (layers - 2) * stream);
  EXPECT_LT(after - pinned, (layers - 2) * stream + 65536) << "and the inputs";
  auto const costs = device().costs();
  bench.pass({.cpu_checkpointing = true});
  EXPECT_EQ(device().costs(), costs) << "a later pass allocates nothing";
}

/// The next pass may not find copies of the last one in its slots.
TEST(HostCheckpoints, OutliveAPassThatEndsEarly) {
  OnDevice stays(6, Dtype::fp32), leaves(6, Dtype::fp32);
  double const wanted = stays.pass({});
  for (int last = 1; last <= 12; ++last) {
    int calls = 0;
    device().jitter_us = 200;
    test::ResidentParams params(leaves.lm->units(), Dtype::fp32, test::generator_weights());
    std::swap(params, leaves.params);
    EXPECT_THROW(leaves.pass({.cpu_checkpointing = true,
                              .between_layers =
                                  [&] {
                                    if (++calls == last) throw std::runtime_error("stop");
                                  }}),
                 std::runtime_error);
    leaves.queue->record().wait_for(std::chrono::seconds(10));  // it reads these weights
    std::swap(params, leaves.params);
    EXPECT_EQ(leaves.pass({.cpu_checkpointing = true}), wanted) << last;
    device().jitter_us = 0;
    EXPECT_EQ(leaves.gradients(), stays.gradients()) << last;
    leaves.params.begin_step();
  }
}

}  // namespace
