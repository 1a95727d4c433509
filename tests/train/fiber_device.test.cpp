/// Complete training steps with the thread blocks of a GPU: every kernel runs with its real number
/// of threads, as fibers, on streams made of host threads, in graphs, with collectives between the
/// ranks. Not here: products, whose library has a stand-in of its own (tests/gpu), and machine
/// code.
#include <gtest/gtest.h>

#include <tuple>

#include "../kernels/fiber_thread_block.hpp"
#include "fake_device.hpp"
#include "mpi_test.hpp"
#include "small_training.hpp"
#include "tessera/comm/compose/device_collectives.hpp"
#include "tessera/comm/compose/host_collectives.hpp"

namespace tessera {
namespace {

using namespace std::chrono_literals;
using kernels::test::FiberDevice;
using kernels::test::FiberOrder;

test::SmallResult on_host(test::SmallTraining const& training) {
  auto const comm = comm::make_mpi(test::session(), 60s);
  auto const queue = memory::make_inline_queue("compute");
  return test::train_small(training, *comm, *queue);
}

test::SmallResult on_fibers(test::SmallTraining const& training, FiberOrder order, int warp,
                            int threads_per_row) {
  test::FakeDevice::of_process();
  FiberDevice const fibers(order, warp, threads_per_row);
  auto const comm =
      comm::make_device(comm::make_mpi(test::session(), 60s), 60s, comm::DeviceTransport::staged);
  auto const queue = memory::make_stream_queue("compute", memory::StreamPriority::normal,
                                               memory::GraphMode::capture);
  auto out = test::train_small(training, *comm, *queue);
  EXPECT_GT(fibers.blocks(), 100);
  return out;
}

class StepOnFibers : public ::testing::TestWithParam<std::tuple<std::string, Dtype, int>> {};

TEST_P(StepOnFibers, IsTheHostsInEveryOrderOfTheThreads) {
  auto const [family, dtype, stage] = GetParam();
  auto training = test::small_training(stage, dtype);
  training.family = family;
  training.steps = 3;  // plain, captured, replayed
  auto const host = on_host(training);
  auto const replayed = test::FakeDevice::of_process().graphs_replayed.load();
  auto const there = on_fibers(training, FiberOrder::ascending, 32, 128);
  EXPECT_GT(test::FakeDevice::of_process().graphs_replayed.load(), replayed);
  auto const backwards = on_fibers(training, FiberOrder::descending, 64, 128);
  EXPECT_EQ(backwards.losses, there.losses);
  EXPECT_EQ(backwards.master_weights, there.master_weights);

  // as train.device_path
  double const tolerance = dtype == Dtype::fp32 ? 1e-5 : 2e-2;
  for (std::size_t step = 0; step < host.losses.size(); ++step) {
    EXPECT_NEAR(there.losses[step], host.losses[step], tolerance * host.losses[step])
        << "step " << step;
    EXPECT_NEAR(there.norms[step], host.norms[step], 4 * tolerance * host.norms[step])
        << "step " << step;
  }
  EXPECT_LT(test::relative_difference(there.master_weights, host.master_weights),
            dtype == Dtype::fp32 ? 1e-4 : 3e-2);
}

INSTANTIATE_TEST_SUITE_P(Models, StepOnFibers,
                         ::testing::Values(std::tuple{"gpt2", Dtype::fp32, 2},
                                           std::tuple{"llama", Dtype::bf16, 3}),
                         [](auto const& info) { return std::get<0>(info.param); });

}  // namespace
}  // namespace tessera
