/// Weights of a device in host memory and on a drive: the bits of weights on the device, whatever
/// the timing of streams and threads.
#include "weights/shard_store.hpp"

#include <gtest/gtest.h>

#include "device_training.hpp"
#include "engine_settings.hpp"
#include "tessera/core/error.hpp"

namespace tessera {
namespace {

using namespace test;

enum class Optimizer { on_device, on_host, in_part, on_drive };

zero::EngineConfig with_optimizer(zero::EngineConfig config, Optimizer place) {
  if (place == Optimizer::on_host || place == Optimizer::in_part)
    test::states_of(config).optimizer_offload = {
        .tile_numel = 3000, .buffer_count = 2, .ratio = place == Optimizer::in_part ? 0.3 : 1.0};
  if (place == Optimizer::on_drive) test::states_of(config).optimizer_swap = to_the_drive(5000, 3);
  return config;
}

zero::WeightSwap weights_on_the_drive(int buffers, std::int64_t in_memory) {
  return {.transfers = to_the_drive(1, 1).transfers,
          .buffer_count = buffers,
          .memory_numel = in_memory};
}

void expect_bits_of_the_device(std::string const& algorithm, Dtype dtype, Optimizer place) {
  SCOPED_TRACE(concat(algorithm, ", ", name_of(dtype), ", optimizer ", static_cast<int>(place)));
  auto training = small_training(3, dtype);
  training.steps = 3;
  training.config.optimizer = optim::make_spec(algorithm);
  training.config = with_optimizer(training.config, place);
  test::set_prefetch(training.config, 20000);
  auto const on_the_device = on_device(training);
  test::weights_of(training.config).weight_offload.emplace();
  expect_same(on_device(training), on_the_device);
  expect_same(on_device(training, 60), on_the_device);
  test::weights_of(training.config).weight_offload.reset();
  test::weights_of(training.config).weight_swap = weights_on_the_drive(2, 0);
  expect_same(on_device(training, 30), on_the_device);
}

TEST(StreamedWeights, GiveTheBitsOfWeightsOnTheDevice) {
  for (auto const dtype : {Dtype::fp32, Dtype::bf16, Dtype::fp16})
    for (auto const place :
         {Optimizer::on_device, Optimizer::on_host, Optimizer::in_part, Optimizer::on_drive})
      expect_bits_of_the_device("AdamW", dtype, place);
}

/// The first unit is updated last and gathered first: its buffer is wanted while it is written.
TEST(StreamedWeights, AreNotOverwrittenWhileADriveWritesThem) {
  for (int repeat = 0; repeat < 4; ++repeat)
    expect_bits_of_the_device("AdamW", Dtype::bf16, Optimizer::in_part);
}

TEST(StreamedWeights, TakeOptimizersOfCompleteParameters) {
  for (std::string const algorithm : {"Lamb", "Muon"})
    for (auto const place : {Optimizer::on_device, Optimizer::on_host})
      expect_bits_of_the_device(algorithm, Dtype::bf16, place);
}

TEST(StreamedWeights, TakeAPartOfTheUnitsInMemoryAndMasterWeightsOf16Bits) {
  auto training = small_training(3, Dtype::bf16);
  test::states_of(training.config).master_dtype = Dtype::bf16;
  training.steps = 3;
  for (auto const place : {Optimizer::on_device, Optimizer::on_host}) {
    SCOPED_TRACE(static_cast<int>(place));
    auto changed = training;
    changed.config = with_optimizer(training.config, place);
    auto const wanted = on_device(changed);
    test::weights_of(changed.config).weight_offload = {.space = memory::MemorySpace::host};
    expect_same(on_device(changed, 30), wanted);
    test::weights_of(changed.config).weight_offload.reset();
    test::weights_of(changed.config).weight_swap = weights_on_the_drive(1, 30000);
    expect_same(on_device(changed, 30), wanted);
  }
}

/// Oracle: bytes of a rank's shards.
TEST(StreamedWeights, AreInHostMemory) {
  device();
  auto const comm = comm::make_device(comm::make_mpi(session(), std::chrono::seconds(60)),
                                      std::chrono::seconds(60), comm::DeviceTransport::staged);
  auto const queue = memory::make_stream_queue("compute");
  auto const model = model::make_model(small_gpt2(), Dtype::bf16);
  auto config = small_training(3, Dtype::bf16).config;
  test::weights_of(config).weight_offload.emplace();
  auto const& tracker = memory::MemoryTracker::of_process();
  auto const before = tracker.current(memory::Purpose::weights);
  auto const engine = zero::make_engine(config, model->units(), *comm, *queue);
  auto const bytes = 2 * static_cast<std::size_t>(engine->plan().partition_numel());
  auto const memory = engine->memory();
  EXPECT_EQ(memory.weights, bytes);
  EXPECT_EQ(memory.offloaded_weights, bytes);
  EXPECT_EQ(memory.offloaded, bytes);
  EXPECT_EQ(memory.pinned, bytes);
  EXPECT_EQ(tracker.current(memory::Purpose::weights) - before, bytes);
}

/// The depth is chosen in the third pass.
void expect_prefetch(zero::Weights const& weights, bool is_streamed, bool is_on_drive) {
  auto const report = weights.prefetch();
  ASSERT_EQ(report.has_value(), is_streamed);
  if (!is_streamed) return;
  EXPECT_GE(report->units, 1);
  EXPECT_LE(report->units, report->max_units);
  EXPECT_GT(report->transfer_seconds, 0.0);
  EXPECT_GT(report->compute_seconds, 0.0);
  EXPECT_GE(report->waiting_seconds, 0.0);
  EXPECT_EQ(report->max_read_units > 0, is_on_drive);
  EXPECT_EQ(report->read_units > 0, is_on_drive);
  EXPECT_EQ(report->read_seconds > 0, is_on_drive);
}

/// Each pass gathers the values that initialize() has set.
TEST(StreamedWeights, ServeInference) {
  device();
  auto const comm = comm::make_device(comm::make_mpi(session(), std::chrono::seconds(60)),
                                      std::chrono::seconds(60), comm::DeviceTransport::staged);
  auto const queue = memory::make_stream_queue("compute");
  auto const model = model::make_model(small_gpt2(), Dtype::bf16);
  auto config = small_training(3, Dtype::bf16).config;
  auto const tokens = small_tokens(1, 1, 1);
  std::vector<double> losses;
  for (int place = 0; place < 3; ++place) {
    if (place == 1) test::weights_of(config).weight_offload.emplace();
    if (place == 2) test::weights_of(config).weight_swap = weights_on_the_drive(1, 0);
    auto const weights = zero::make_weights(config, model->units(), *comm, *queue);
    weights->initialize([&](memory::UnitIndex unit, int parameter, std::int64_t first,
                            std::int64_t numel, float* out) {
      model::initialize_parameter(
          model->units()[position(unit)].parameters[static_cast<std::size_t>(parameter)], 3, first,
          numel, out);
    });
    device().jitter_us = 40;
    for (int pass = 0; pass < 3; ++pass)
      losses.push_back(model
                           ->evaluate({tokens.data(), SmallTraining::rows, SmallTraining::length},
                                      *weights, *queue)
                           .value());
    device().jitter_us = 0;
    expect_prefetch(*weights, place > 0, place == 2);
  }
  EXPECT_EQ(losses, std::vector<double>(9, losses[0]));
}

/// Units with parameters that train, with some of them, and with none.
TEST(StreamedWeights, TakeFrozenParameters) {
  for (auto const place : {Optimizer::on_device, Optimizer::in_part, Optimizer::on_drive}) {
    SCOPED_TRACE(concat("optimizer ", static_cast<int>(place)));
    auto training = small_training(3, Dtype::bf16);
    training.frozen_parameters =
        place == Optimizer::in_part ? ".*(wte|wpe|ln_f|mlp).*" : ".*h\\.0\\..*";
    training.steps = 3;
    training.config = with_optimizer(training.config, place);
    auto const wanted = on_device(training);
    bool const pins = place != Optimizer::on_device;
    test::weights_of(training.config).weight_offload = {.space = pins ? memory::MemorySpace::pinned
                                                                      : memory::MemorySpace::host};
    expect_same(on_device(training, 40), wanted);
    test::weights_of(training.config).weight_offload.reset();
    test::weights_of(training.config).weight_swap = weights_on_the_drive(2, pins ? 0 : 30000);
    expect_same(on_device(training, 30), wanted);
  }
}

}  // namespace
}  // namespace tessera
