/// The host's update of what a device computes: the same bits as without offload, whatever the
/// timing of streams and threads.
#include "layout/offload.hpp"

#include <gtest/gtest.h>

#include <ostream>

#include "device_training.hpp"
#include "engine_settings.hpp"

namespace tessera {
namespace {

using namespace std::chrono_literals;
using namespace test;
using zero::detail::TileList;

zero::OptimizerOffload to_the_cpu(std::int64_t tile_numel, int buffers, double ratio = 1.0) {
  return {.tile_numel = tile_numel, .buffer_count = buffers, .ratio = ratio};
}

TEST(TileList, CutsRegionsAtMultiplesOfItsAlignment) {
  TileList const tiles({5000, 10, 2048}, 1500);
  std::vector<std::int64_t> begins, sizes;
  for (auto const& tile : tiles.all()) {
    begins.push_back(tile.begin);
    sizes.push_back(tile.numel);
  }
  EXPECT_EQ(begins, (std::vector<std::int64_t>{0, 2048, 4096, 0, 0}));
  EXPECT_EQ(sizes, (std::vector<std::int64_t>{2048, 2048, 904, 10, 2048}));
  EXPECT_EQ(tiles.first(memory::UnitIndex(1)), 3u);
  EXPECT_EQ(tiles.end(memory::UnitIndex(2)), 5u);
  EXPECT_EQ(tiles.largest(), 2048);
}

struct Case {
  int stage;
  Dtype dtype;
  char const* optimizer;
};
std::ostream& operator<<(std::ostream& out, Case const& c) {
  return out << c.optimizer << " stage " << c.stage << " " << name_of(c.dtype);
}

class OffloadedTraining : public ::testing::TestWithParam<Case> {};

TEST_P(OffloadedTraining, GivesTheBitsOfTheDevice) {
  auto const& c = GetParam();
  auto training = test::small_training(c.stage, c.dtype);
  training.config.optimizer = optim::make_spec(c.optimizer);
  training.steps = 3;
  auto const without = on_device(training);
  test::states_of(training.config).optimizer_offload = to_the_cpu(3000, 2);
  expect_same(on_device(training), without);
  expect_same(on_device(training, 60), without);
}

std::vector<Case> cases() {
  std::vector<Case> out;
  for (int stage = 1; stage <= 3; ++stage) {
    for (auto dtype : {Dtype::fp32, Dtype::bf16, Dtype::fp16})
      out.push_back({stage, dtype, "AdamW"});
    for (auto const* optimizer : {"SGD", "Lion", "Lamb", "Adafactor", "Muon"})
      out.push_back({stage, Dtype::bf16, optimizer});
  }
  return out;
}
INSTANTIATE_TEST_SUITE_P(Stages, OffloadedTraining, ::testing::ValuesIn(cases()));

TEST(OffloadedTraining, LeavesAPartOnTheDevice) {
  for (int stage = 1; stage <= 3; ++stage)
    for (auto dtype : {Dtype::fp32, Dtype::bf16}) {
      auto training = test::small_training(stage, dtype);
      training.steps = 3;
      auto const without = on_device(training);
      for (double ratio : {0.0, 0.3}) {
        test::states_of(training.config).optimizer_offload = to_the_cpu(2048, 3, ratio);
        expect_same(on_device(training, 30), without);
      }
    }
}

TEST(OffloadedTraining, TakesPageableMemoryAndOneBuffer) {
  auto training = test::small_training(2, Dtype::bf16);
  auto const without = on_device(training);
  test::states_of(training.config).optimizer_offload = {
      .tile_numel = 1, .buffer_count = 1, .space = memory::MemorySpace::host};
  expect_same(on_device(training), without);
}

TEST(OffloadedTraining, ToADriveGivesTheBitsOfTheDevice) {
  for (int stage = 1; stage <= 3; ++stage)
    for (auto dtype : {Dtype::fp32, Dtype::bf16}) {
      auto training = test::small_training(stage, dtype);
      training.steps = 3;
      auto const without = on_device(training);
      test::states_of(training.config).optimizer_swap = to_the_drive(5000, 3);
      expect_same(on_device(training, 30), without);
    }
}

/// Tiles on the drive are complete regions.
TEST(OffloadedTraining, ToADriveTakesOptimizersOfCompleteParameters) {
  for (int stage = 1; stage <= 3; ++stage)
    for (auto const* optimizer : {"Lamb", "Adafactor", "Muon"}) {
      SCOPED_TRACE(optimizer);
      auto training = test::small_training(stage, Dtype::bf16);
      training.config.optimizer = optim::make_spec(optimizer);
      training.steps = 3;
      test::states_of(training.config).optimizer_offload = to_the_cpu(3000, 2);
      auto const in_memory = on_device(training);
      test::states_of(training.config).optimizer_offload.reset();
      test::states_of(training.config).optimizer_swap = to_the_drive(5000, 3);
      expect_same(on_device(training, 30), in_memory);
    }
}

/// Codes stay in host memory; the master weights go to the drive.
TEST(OffloadedTraining, TakesStatesInCodesWithAndWithoutADrive) {
  for (int stage = 1; stage <= 3; ++stage)
    for (auto const* optimizer : {"AdamW8bit", "Lion8bit"}) {
      SCOPED_TRACE(optimizer);
      auto training = test::small_training(stage, Dtype::bf16);
      training.config.optimizer = optim::make_spec(optimizer);
      training.steps = 3;
      auto const without = on_device(training);
      test::states_of(training.config).optimizer_offload = to_the_cpu(3000, 2);
      expect_same(on_device(training, 30), without);
      test::states_of(training.config).optimizer_offload.reset();
      test::states_of(training.config).optimizer_swap = to_the_drive(5000, 3);
      expect_same(on_device(training, 30), without);
    }
}

/// Sums of earlier micro-steps have left the device before the next one brings them back.
TEST(OffloadedTraining, AddsQuantizedGradientsOfSeveralMicroSteps) {
  for (bool const has_feedback : {false, true}) {
    auto training = test::small_training(3, Dtype::bf16);
    training.steps = 3;
    auto& quantized = test::weights_of(training.config).quantized_gradients.emplace();
    if (has_feedback) quantized.feedback.emplace();
    auto const without = on_device(training);
    test::states_of(training.config).optimizer_offload = to_the_cpu(3000, 2);
    expect_same(on_device(training, 30), without);
  }
}

/// Padding shares the scales of its neighbors: it is zero also in weights that return.
TEST(OffloadedTraining, ReturnsWeightsThatHaveTheSameCodes) {
  for (int const bits : {8, 4}) {
    auto training = test::small_training(3, Dtype::bf16);
    training.steps = 3;
    test::weights_of(training.config).quantized_weight_bits = bits;
    auto const without = on_device(training);
    test::states_of(training.config).optimizer_offload = to_the_cpu(3000, 2);
    expect_same(on_device(training, 30), without);
  }
}

TEST(OffloadedTraining, TakesMasterWeightsOf16Bits) {
  for (int stage = 1; stage <= 3; ++stage)
    for (auto const* optimizer : {"AdamW", "Lion"}) {
      SCOPED_TRACE(optimizer);
      auto training = test::small_training(stage, Dtype::bf16);
      training.config.optimizer = optim::make_spec(optimizer);
      test::states_of(training.config).master_dtype = Dtype::bf16;
      training.config.optimizer.set_state_dtype(Dtype::bf16);
      training.steps = 3;
      auto const without = on_device(training);
      for (double ratio : {1.0, 0.3}) {
        test::states_of(training.config).optimizer_offload = to_the_cpu(2048, 3, ratio);
        expect_same(on_device(training, 30), without);
      }
    }
}

/// Units with parameters that train, with some of them, and with none.
TEST(OffloadedTraining, LeavesFrozenParametersOnTheDevice) {
  for (int stage = 1; stage <= 3; ++stage)
    for (auto const* frozen : {".*h\\.0\\..*", ".*(wte|wpe|ln_f|mlp).*"}) {
      SCOPED_TRACE(frozen);
      auto training = test::small_training(stage, Dtype::bf16);
      training.frozen_parameters = frozen;
      training.steps = 3;
      auto const without = on_device(training);
      for (double ratio : {1.0, 0.3}) {
        test::states_of(training.config).optimizer_offload = to_the_cpu(2048, 2, ratio);
        expect_same(on_device(training, 30), without);
      }
      test::states_of(training.config).optimizer_offload.reset();
      test::states_of(training.config).optimizer_swap = to_the_drive(5000, 3);
      expect_same(on_device(training, 30), without);
    }
}

TEST(OffloadedTraining, SkipsWhatOverflows) {
  for (int stage = 1; stage <= 3; ++stage) {
    auto training = test::small_training(stage, Dtype::fp16);
    training.config.loss_scaler.dynamic = true;
    training.config.loss_scaler.initial_scale_power = 30;
    training.config.loss_scaler.hysteresis = 1;
    training.steps = 16;
    auto const without = on_device(training);
    EXPECT_TRUE(without.skipped.front());
    EXPECT_FALSE(without.skipped.back());
    test::states_of(training.config).optimizer_offload = to_the_cpu(3000, 2);
    expect_same(on_device(training, 30), without);
  }
}

/// Model states of a device: 16-bit weights only in stage 2, those and full gradients in stage 1.
TEST(OffloadedTraining, HasNoStatesOnTheDevice) {
  auto const comm =
      comm::make_device(comm::make_mpi(test::session(), 60s), 60s, comm::DeviceTransport::staged);
  auto const queue = memory::make_stream_queue("compute");
  auto const model = model::make_model(test::small_gpt2(), Dtype::bf16);
  auto const& tracker = memory::MemoryTracker::of_device();
  for (int stage = 1; stage <= 3; ++stage) {
    using enum memory::Purpose;
    auto config = test::small_training(stage, Dtype::bf16).config;
    test::states_of(config).optimizer_offload = to_the_cpu(3000, 2);
    std::size_t const before = tracker.current(gradients);
    auto const engine = zero::make_engine(config, model->units(), *comm, *queue);
    EXPECT_EQ(tracker.current(master_weights), 0u);
    EXPECT_EQ(tracker.current(optimizer_state), 0u);
    EXPECT_EQ(tracker.current(gradients) > before, stage == 1);
    auto const numel = static_cast<std::size_t>(
        comm->size() == 1 ? engine->plan().padded_count() : engine->plan().partition_numel());
    auto const memory = engine->memory();
    EXPECT_EQ(memory.master_weights, 4 * numel);
    EXPECT_EQ(memory.optimizer_state, 8 * numel);
    EXPECT_GE(memory.offloaded, 12 * numel + 4 * numel);  // two micro-steps sum in fp32
    EXPECT_GE(memory.pinned, 4 * numel);
    EXPECT_EQ(memory.offloaded_share, 1.0);
  }
}

TEST(OffloadedTraining, RefusesWhatItCannotDo) {
  auto const comm = comm::make_loopback();
  auto const queue = memory::make_stream_queue("compute");
  auto const model = model::make_model(test::small_gpt2(), Dtype::bf16);
  auto const refuses = [&](int stage, char const* optimizer,
                           zero::OptimizerOffload const& offload) {
    auto config = test::small_training(stage, Dtype::bf16).config;
    config.optimizer = optim::make_spec(optimizer);
    test::states_of(config).optimizer_offload = offload;
    EXPECT_THROW(zero::make_engine(config, model->units(), *comm, *queue), InternalError);
  };
  refuses(1, "AdamW", to_the_cpu(3000, 2, 1.5));
  refuses(1, "Lamb", to_the_cpu(3000, 2, 0.5));
  refuses(1, "Muon", to_the_cpu(3000, 2, 0.5));
  auto config = test::small_training(3, Dtype::bf16).config;
  test::states_of(config).master_dtype = Dtype::bf16;
  test::states_of(config).optimizer_swap = to_the_drive(5000, 3);
  EXPECT_THROW(zero::make_engine(config, model->units(), *comm, *queue), InternalError)
      << "16-bit master weights on a drive";
}

}  // namespace
}  // namespace tessera
