#pragma once
/// Small runs on a device made of host memory, whose streams are threads.

#include <gtest/gtest.h>

#include <filesystem>

#include "fake_device.hpp"
#include "mpi_test.hpp"
#include "small_training.hpp"
#include "tessera/comm/compose/device_collectives.hpp"
#include "tessera/comm/compose/host_collectives.hpp"
#include "tessera/memory/swap_file.hpp"

namespace tessera::test {

inline FakeDevice& device() { return FakeDevice::of_process(); }

inline SmallResult on_device(SmallTraining const& training, unsigned jitter_us = 0) {
  device().jitter_us = jitter_us;
  auto const comm = comm::make_device(comm::make_mpi(session(), std::chrono::seconds(60)),
                                      std::chrono::seconds(60), comm::DeviceTransport::staged);
  auto const queue = memory::make_stream_queue("compute");
  auto out = train_small(training, *comm, *queue);
  device().jitter_us = 0;
  return out;
}

inline void expect_same(SmallResult const& ours, SmallResult const& wanted) {
  EXPECT_EQ(ours.losses, wanted.losses);
  EXPECT_EQ(ours.norms, wanted.norms);
  EXPECT_EQ(ours.skipped, wanted.skipped);
  EXPECT_EQ(ours.master_weights, wanted.master_weights);
  EXPECT_EQ(ours.states, wanted.states);
}

inline zero::OptimizerSwap to_the_drive(std::int64_t tile_numel, int buffers) {
  memory::SwapOptions transfers;
  transfers.directories = {std::filesystem::path(::testing::TempDir())};
  transfers.block_size = memory::swap_alignment;
  transfers.queue_depth = 2;
  return {transfers, tile_numel, buffers};
}

}  // namespace tessera::test
