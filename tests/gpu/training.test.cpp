/// A few optimizer steps of a small GPT-2 on the device and on the host: the same losses and the same masters. That takes every
/// kernel, the matrix products, the engine, the copies and the collectives of the device path through the real thing.
#include <gtest/gtest.h>

#include <cmath>
#include <cstdio>
#include <tuple>
#include <vector>

#include "tessera/comm/device_collectives.hpp"
#include "tessera/core/random.hpp"
#include "tessera/memory/device.hpp"
#include "tessera/memory/runtime.hpp"
#include "tessera/model/causal_lm.hpp"
#include "tessera/topology/mpi_session.hpp"
#include "tessera/zero/engine.hpp"

namespace tessera {
namespace {

using namespace std::chrono_literals;

topology::MpiSession* session = nullptr;

constexpr std::int64_t vocabulary = 131, length = 40, rows = 2;
constexpr int steps = 4, micro_steps = 2;

ConfigTree small_gpt2() {
  ConfigTree config = model::default_config("gpt2");
  config.set("n_layer", 2).set("n_embd", 48).set("n_head", 3).set("vocab_size", vocabulary).set("n_positions", 64);
  for (char const* key : {"resid_pdrop", "embd_pdrop", "attn_pdrop"}) config.set(key, 0.1);
  return config;
}

std::vector<std::int32_t> tokens_of(int step, int micro, int rank) {
  Philox const random{7, static_cast<std::uint64_t>(step * 1000 + micro * 100 + rank)};
  std::vector<std::int32_t> tokens;
  for (std::uint64_t i = 0; i < static_cast<std::uint64_t>(rows * length); ++i)
    tokens.push_back(static_cast<std::int32_t>(random.uniform(i) * static_cast<float>(vocabulary)));
  return tokens;
}

struct Result {
  std::vector<double> losses, norms;
  std::vector<float> masters;  ///< of this rank's shards
};

Result train(zero::EngineConfig const& config, comm::Collectives& comm, memory::Queue& compute) {
  auto const model = model::make_model(small_gpt2(), config.dtype);
  auto const engine = zero::make_engine(config, model->units(), comm, compute);
  engine->initialize([&](int unit, int parameter, std::int64_t first, std::int64_t numel, float* out) {
    auto const& spec = model->units()[static_cast<std::size_t>(unit)].parameters[static_cast<std::size_t>(parameter)];
    model::initialize_parameter(spec, 3, first, numel, out);
  });
  Result result;
  for (int step = 0; step < steps; ++step) {
    engine->begin_step();
    double loss = 0.0;
    for (int micro = 0; micro < micro_steps; ++micro) {
      engine->begin_micro_step(micro, micro_steps);
      auto const tokens = tokens_of(step, micro, comm.rank());
      model::PassSettings settings;
      settings.dropout_seed = 5;
      settings.step = static_cast<std::uint64_t>(step);
      settings.gradient_scale = static_cast<float>(engine->loss_scale() / static_cast<double>(rows * (length - 1) * micro_steps * comm.size()));
      settings.gradient_checkpointing = micro == 1;
      loss += model->train({tokens.data(), rows, length, (micro * comm.size() + comm.rank()) * rows}, settings, *engine, compute);
    }
    result.norms.push_back(engine->finish_step(1e-3).grad_norm);
    result.losses.push_back(loss / static_cast<double>(rows * (length - 1) * micro_steps));
  }
  auto const state = engine->state();
  for (std::size_t u = 0; u < state[0].unit_shards.size(); ++u) {
    auto const numel = engine->plan().unit(static_cast<int>(u)).shard_numel;
    result.masters.insert(result.masters.end(), state[0].unit_shards[u], state[0].unit_shards[u] + numel);
  }
  return result;
}

class DeviceTraining : public ::testing::TestWithParam<std::tuple<int, Dtype>> {};

TEST_P(DeviceTraining, IsTheHosts) {
  auto const [stage, dtype] = GetParam();
  zero::EngineConfig config;
  config.stage = stage;
  config.dtype = dtype;
  config.max_grad_norm = 1.0;
  config.weight_decay = 0.1;
  config.accumulation_steps = micro_steps;
  auto const host_comm = comm::make_mpi(*session, 60s);
  auto const host_queue = memory::make_inline_queue("compute");
  Result const host = train(config, *host_comm, *host_queue);

  auto const device_comm = comm::make_device(comm::make_mpi(*session, 60s), 60s);
  auto const stream = memory::make_stream_queue("compute");
  Result const device = train(config, *device_comm, *stream);

  double const tolerance = dtype == Dtype::fp32 ? 2e-4 : dtype == Dtype::fp16 ? 5e-3 : 3e-2;
  for (int step = 0; step < steps; ++step) {
    auto const s = static_cast<std::size_t>(step);
    EXPECT_NEAR(device.losses[s], host.losses[s], tolerance * host.losses[s]) << "step " << step;
    EXPECT_NEAR(device.norms[s], host.norms[s], 4 * tolerance * host.norms[s]) << "step " << step;
  }
  ASSERT_EQ(device.masters.size(), host.masters.size());
  double difference = 0.0, size = 0.0;
  for (std::size_t i = 0; i < host.masters.size(); ++i) {
    difference += std::pow(device.masters[i] - host.masters[i], 2);
    size += std::pow(host.masters[i], 2);
  }
  EXPECT_LT(std::sqrt(difference / size), dtype == Dtype::fp32 ? 2e-3 : 3e-2);
}

INSTANTIATE_TEST_SUITE_P(Stages, DeviceTraining, ::testing::Combine(::testing::Range(0, 4), ::testing::Values(Dtype::fp32, Dtype::bf16, Dtype::fp16)));

TEST(DeviceTraining, IsRepeatedBitForBit) {
  zero::EngineConfig config;
  config.stage = 2;
  config.accumulation_steps = micro_steps;
  auto const comm = comm::make_device(comm::make_mpi(*session, 60s), 60s);
  auto const stream = memory::make_stream_queue("compute");
  EXPECT_EQ(train(config, *comm, *stream).masters, train(config, *comm, *stream).masters);
}

TEST(DeviceCollectives, NcclWithOneRankAddsAndConverts) {
  if (session->info().world_size > 1) GTEST_SKIP() << "several ranks share a device in these tests, which NCCL does not allow";
  auto const comm = comm::make_device(comm::make_mpi(*session, 60s), 60s, comm::DeviceTransport::nccl);
  auto const stream = memory::make_stream_queue("test");
  std::int64_t const n = 1000;
  auto const in = comm->allocate("in", memory::Purpose::workspace, n * sizeof(bfloat16));
  auto const out = comm->allocate("out", memory::Purpose::workspace, n * sizeof(float));
  std::vector<bfloat16> sent;
  std::vector<float> received(static_cast<std::size_t>(n), 1.0f);
  for (int i = 0; i < n; ++i) sent.emplace_back(static_cast<float>(i % 97));
  memory::copy(*stream, in.get(), sent.data(), n * sizeof(bfloat16));
  memory::copy(*stream, out.get(), received.data(), n * sizeof(float));
  comm->wait(comm->reduce_scatter({in.get(), Dtype::bf16, {n}}, {n, n, 0}, {out.get(), Dtype::fp32, {n}}, true, stream->record()));
  memory::copy(*stream, received.data(), out.get(), n * sizeof(float));
  stream->record().wait("test", 60s);
  for (int i = 0; i < n; ++i) ASSERT_EQ(received[static_cast<std::size_t>(i)], 1.0f + static_cast<float>(i % 97)) << i;
}

TEST(DeviceMemory, LedgerAndDriverAgree) {
  auto const before = memory::describe_device(0).free_bytes;
  memory::Buffer const buffer("a GiB", memory::Purpose::workspace, std::size_t{1} << 30, memory::Tier::device);
  auto const taken = static_cast<double>(before - memory::describe_device(0).free_bytes);
  EXPECT_NEAR(taken, 0x1p30, 0.01 * 0x1p30);
}

}  // namespace
}  // namespace tessera

int main(int argc, char** argv) {
  ::testing::InitGoogleTest(&argc, argv);
  auto const found = tessera::memory::find_devices();
  if (found.count == 0) {
    std::printf("skipped: %s\n", found.reason.c_str());
    return 77;
  }
  tessera::topology::MpiSession session(argc, argv);
  tessera::session = &session;
  tessera::memory::Runtime const runtime({1, session.info().local_rank % found.count});
  return RUN_ALL_TESTS();
}
