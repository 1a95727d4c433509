/// Training through NCCL's implementation, whose two queues run by themselves: any order that the
/// engine does not say by events would show. Oracle: the same training with collectives staged
/// through the host, one queue for all. fp32, so that both form the same sums.
#include <gtest/gtest.h>

#include <algorithm>
#include <cstdint>
#include <limits>

#include "fake_device.hpp"
#include "fake_nccl.hpp"
#include "mpi_test.hpp"
#include "small_training.hpp"
#include "tessera/comm/compose/device_collectives.hpp"
#include "tessera/comm/compose/host_collectives.hpp"

namespace tessera {
namespace {

using namespace std::chrono_literals;

test::FakeDevice& device() { return test::FakeDevice::of_process(); }

test::SmallTraining training_of(int stage) {
  auto out = test::small_training(stage, Dtype::fp32);
  out.config.reduce_bucket_size = out.config.allgather_bucket_size = 5000;  // several pieces a unit
  return out;
}

test::SmallResult run(test::SmallTraining const& training, comm::DeviceTransport transport) {
  auto const comm = comm::make_device(comm::make_mpi(test::session(), 60s), 60s, transport);
  auto const queue = memory::make_stream_queue("compute");
  return test::train_small(training, *comm, *queue);
}

class NcclTraining : public ::testing::TestWithParam<int> {
 protected:
  void SetUp() override { device(); }
  void TearDown() override {
    device().jitter_us = 0;
    EXPECT_EQ(test::take_nccl_breaches(), std::vector<std::string>{});
    EXPECT_EQ(test::nccl_in_use(), test::NcclInUse{});
  }
};

TEST_P(NcclTraining, GivesTheBitsOfOneQueue) {
  auto const training = training_of(GetParam());
  auto const staged = run(training, comm::DeviceTransport::staged);
  for (unsigned const jitter : {0u, 60u}) {
    device().jitter_us = jitter;
    auto const nccl = run(training, comm::DeviceTransport::nccl);
    EXPECT_EQ(nccl.losses, staged.losses);
    EXPECT_EQ(nccl.norms, staged.norms);
    EXPECT_EQ(nccl.master_weights, staged.master_weights);
  }
}

TEST_P(NcclTraining, AllocatesAndFreesNothingInASteadyStep) {
  auto training = training_of(GetParam());
  std::vector<test::FakeDevice::Costs> before;
  training.before_step = [&](int) { before.push_back(device().costs()); };
  run(training, comm::DeviceTransport::nccl);
  EXPECT_EQ(before[3], before[2]);
}

/// Training over NCCL sets these limits, because each operation starts a thread of NCCL.
TEST_P(NcclTraining, MovesAUnitInOneOperation) {
  if (test::session().info().world_size != 2 || GetParam() != 2)
    GTEST_SKIP() << "one case, to save time";
  auto training = training_of(GetParam());
  training.steps = 2;
  auto const count = [&] {
    test::take_nccl_launches();
    run(training, comm::DeviceTransport::nccl);
    auto const launches = test::take_nccl_launches();
    return std::count(launches.begin(), launches.end(), "1 ReduceScatter");
  };
  auto const of_pieces = count();
  training.config.reduce_bucket_size = std::numeric_limits<std::int64_t>::max();
  training.config.allgather_bucket_size = training.config.reduce_bucket_size;
  auto const units = static_cast<std::int64_t>(
      model::make_model(test::small_gpt2(), model::ModelOptions(Dtype::fp32))->units().size());
  auto const reductions = units * training.steps * test::SmallTraining::micro_steps;
  EXPECT_EQ(count(), reductions);
  EXPECT_GT(of_pieces, reductions);
}

INSTANTIATE_TEST_SUITE_P(Stages, NcclTraining, ::testing::Range(0, 4));

}  // namespace
}  // namespace tessera
