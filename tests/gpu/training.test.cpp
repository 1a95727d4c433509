/// A few optimizer steps of a small GPT-2 on the device and on the host: the same losses and the
/// same master_weights. That takes every kernel, the matrix products, the engine, the copies and
/// the collectives of the device path through the real thing: with the argument "device" on a GPU,
/// else on a device made of host memory, where the expectations are the same.
#include <gtest/gtest.h>

#include <cstdio>
#include <string_view>
#include <tuple>
#include <vector>

#include "fake_device.hpp"
#include "small_training.hpp"
#include "tessera/comm/compose/device_collectives.hpp"
#include "tessera/comm/compose/host_collectives.hpp"
#include "tessera/kernels/launch/device_settings.hpp"
#include "tessera/kernels/launch/used_routes.hpp"
#include "tessera/memory/device.hpp"
#include "tessera/memory/runtime.hpp"
#include "tessera/memory/stream_queue.hpp"
#include "tessera/topology/mpi_session.hpp"

namespace tessera {
namespace {

using namespace std::chrono_literals;

topology::MpiSession* session = nullptr;
bool on_gpu = false;

class DeviceTraining : public ::testing::TestWithParam<std::tuple<int, Dtype>> {};

TEST_P(DeviceTraining, IsTheHosts) {
  auto const [stage, dtype] = GetParam();
  auto const training = test::small_training(stage, dtype);
  auto const host_comm = comm::make_mpi(*session, 60s);
  auto const host_queue = memory::make_inline_queue("compute");
  auto const host = test::train_small(training, *host_comm, *host_queue);

  // cuDNN's dropout has other masks than the host's
  kernels::set_device_settings({.attention = kernels::DeviceAttention::portable});
  auto const device_comm = comm::make_device(comm::make_mpi(*session, 60s), 60s);
  auto const stream = memory::make_stream_queue("compute");
  auto const device = test::train_small(training, *device_comm, *stream);
  kernels::set_device_settings({});

  double const tolerance = dtype == Dtype::fp32 ? 2e-4 : dtype == Dtype::fp16 ? 5e-3 : 3e-2;
  for (int step = 0; step < training.steps; ++step) {
    auto const s = static_cast<std::size_t>(step);
    EXPECT_NEAR(device.losses[s], host.losses[s], tolerance * host.losses[s]) << "step " << step;
    EXPECT_NEAR(device.norms[s], host.norms[s], 4 * tolerance * host.norms[s]) << "step " << step;
  }
  ASSERT_EQ(device.master_weights.size(), host.master_weights.size());
  EXPECT_LT(test::relative_difference(device.master_weights, host.master_weights),
            dtype == Dtype::fp32 ? 2e-3 : 3e-2);
}

INSTANTIATE_TEST_SUITE_P(Stages, DeviceTraining,
                         ::testing::Combine(::testing::Range(0, 4),
                                            ::testing::Values(Dtype::fp32, Dtype::bf16,
                                                              Dtype::fp16)),
                         [](auto const& info) {
                           return concat("stage", std::get<0>(info.param), "_",
                                         name_of(std::get<1>(info.param)));
                         });

TEST(DeviceTraining, IsRepeatedBitForBit) {
  for (Dtype const dtype : {Dtype::fp32, Dtype::bf16}) {
    auto const training = test::small_training(2, dtype);
    auto const comm = comm::make_device(comm::make_mpi(*session, 60s), 60s);
    auto const stream = memory::make_stream_queue("compute");
    EXPECT_EQ(test::train_small(training, *comm, *stream).master_weights,
              test::train_small(training, *comm, *stream).master_weights)
        << name_of(dtype);
  }
}

/// With the masks of another generator a small model learns as well.
TEST(DeviceTraining, LearnsWithTheDropoutOfTheChosenAttention) {
  auto const training = test::small_training(0, Dtype::bf16);
  auto const comm = comm::make_device(comm::make_mpi(*session, 60s), 60s);
  auto const stream = memory::make_stream_queue("compute");
  kernels::reset_used_routes();
  auto const chosen = test::train_small(training, *comm, *stream);
  std::printf("%s\n", kernels::used_routes_text().c_str());
  kernels::set_device_settings({.attention = kernels::DeviceAttention::portable});
  auto const portable = test::train_small(training, *comm, *stream);
  kernels::set_device_settings({});
  for (std::size_t s = 0; s < portable.losses.size(); ++s)
    EXPECT_NEAR(chosen.losses[s], portable.losses[s], 0.1 * portable.losses[s]) << "step " << s;
}

TEST(DeviceTraining, GraphsComputeTheSameBits) {
  for (auto const& [stage, dropout] : {std::pair{0, 0.1}, {3, 0.1}, {0, 0.0}, {3, 0.0}}) {
    auto training = test::small_training(stage, Dtype::bf16);
    training.dropout = dropout;
    training.steps = 6;
    auto const before = memory::graph_launches_of_process();
    auto const comm = comm::make_device(comm::make_mpi(*session, 60s), 60s);
    auto const plain = memory::make_stream_queue("compute"),
               graphs = memory::make_stream_queue("compute", memory::StreamPriority::normal,
                                                  memory::GraphMode::capture);
    EXPECT_EQ(test::train_small(training, *comm, *graphs).master_weights,
              test::train_small(training, *comm, *plain).master_weights)
        << "stage " << stage << ", dropout " << dropout;
    auto const launches = memory::graph_launches_of_process() - before;
    std::printf(
        "stage %d, dropout %.1f: graphs replayed %ld, updated %ld, captured %ld, kernel by "
        "kernel %ld\n",
        stage, dropout, static_cast<long>(launches.replayed), static_cast<long>(launches.updated),
        static_cast<long>(launches.captured), static_cast<long>(launches.separate));
    EXPECT_GT(launches.replayed, 0) << "stage " << stage << ", dropout " << dropout;
  }
}

class DeviceCollectives : public ::testing::TestWithParam<comm::NcclCtaPolicy> {};

TEST_P(DeviceCollectives, NcclWithOneRankAddsAndConverts) {
  if (!on_gpu) GTEST_SKIP() << "NCCL needs a GPU; over a fake NCCL: gpu.nccl";
  if (session->info().world_size > 1)
    GTEST_SKIP() << "several ranks share a device in these tests, which NCCL does not allow";
  auto const comm = comm::make_device(comm::make_mpi(*session, 60s), 60s,
                                      comm::DeviceTransport::nccl, {.cta_policy = GetParam()});
  auto const stream = memory::make_stream_queue("test");
  std::int64_t const n = 1000;
  auto const in = comm->allocate("in", memory::Purpose::workspace, n * sizeof(bfloat16));
  auto const out = comm->allocate("out", memory::Purpose::workspace, n * sizeof(float));
  std::vector<bfloat16> sent;
  std::vector<float> received(static_cast<std::size_t>(n), 1.0f);
  for (int i = 0; i < n; ++i) sent.emplace_back(static_cast<float>(i % 97));
  std::printf("%s\n", comm::nccl_use_text(*comm::nccl_use()).c_str());
  memory::copy(*stream, in.get(), sent.data(), n * sizeof(bfloat16));
  memory::copy(*stream, out.get(), received.data(), n * sizeof(float));
  comm->wait(comm->reduce_scatter({in.get(), Dtype::bf16, {n}}, {n, n, 0},
                                  {out.get(), Dtype::fp32, {n}}, memory::WriteMode::add,
                                  stream->record()));
  memory::copy(*stream, received.data(), out.get(), n * sizeof(float));
  stream->record().wait("test", 60s);
  for (int i = 0; i < n; ++i)
    ASSERT_EQ(received[static_cast<std::size_t>(i)], 1.0f + static_cast<float>(i % 97)) << i;
}
INSTANTIATE_TEST_SUITE_P(CtaPolicies, DeviceCollectives,
                         ::testing::Values(comm::NcclCtaPolicy::library_default,
                                           comm::NcclCtaPolicy::zero),
                         [](auto const& info) { return std::string(name_of(info.param)); });

}  // namespace
}  // namespace tessera

int main(int argc, char** argv) {
  using namespace tessera;
  ::testing::InitGoogleTest(&argc, argv);
  if (GTEST_FLAG_GET(list_tests)) return RUN_ALL_TESTS();  // needs no device
  on_gpu = argc > 1 && std::string_view(argv[1]) == "device";
  if (!on_gpu) test::FakeDevice::of_process().capacity = std::size_t{1} << 30;
  auto const found = memory::find_devices();
  if (found.count == 0) {
    std::printf("skipped: %s\n", found.reason.c_str());
    return 77;
  }
  topology::MpiSession mpi(argc, argv);
  session = &mpi;
  memory::Runtime const runtime({1, mpi.info().local_rank % found.count});
  return RUN_ALL_TESTS();
}
