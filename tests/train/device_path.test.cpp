/// Training as a device does it, on one made of host memory: streams that run by themselves,
/// memory that the host may not touch, events for all order, collectives staged through pinned
/// memory. What only CUDA's own kernels and libraries can show is in tests/gpu.
#include <gtest/gtest.h>

#include <latch>
#include <tuple>

#include "../model/family_suite.hpp"
#include "fake_device.hpp"
#include "mpi_test.hpp"
#include "small_training.hpp"
#include "tessera/comm/compose/device_collectives.hpp"
#include "tessera/comm/compose/host_collectives.hpp"
#include "tessera/train/generate/generator.hpp"

namespace tessera {
namespace {

using namespace std::chrono_literals;

test::FakeDevice& device() { return test::FakeDevice::of_process(); }

test::SmallResult on_host(test::SmallTraining const& training) {
  auto const comm = comm::make_mpi(test::session(), 60s);
  auto const queue = memory::make_inline_queue("compute");
  return test::train_small(training, *comm, *queue);
}

test::SmallResult on_device(test::SmallTraining const& training,
                            memory::GraphMode graph_mode = memory::GraphMode::off) {
  device();
  auto const comm =
      comm::make_device(comm::make_mpi(test::session(), 60s), 60s, comm::DeviceTransport::staged);
  auto const queue =
      memory::make_stream_queue("compute", memory::StreamPriority::normal, graph_mode);
  return test::train_small(training, *comm, *queue);
}

class DevicePath : public ::testing::TestWithParam<std::tuple<int, Dtype>> {};

TEST_P(DevicePath, TrainsLikeTheHostWhateverTheTimingOfItsStreams) {
  auto const [stage, dtype] = GetParam();
  auto const training = test::small_training(stage, dtype);
  auto const host = on_host(training);
  auto const smooth = on_device(training);
  device().jitter_us = 60;
  auto const uneven = on_device(training);
  device().jitter_us = 0;

  EXPECT_EQ(uneven.losses, smooth.losses);
  EXPECT_EQ(uneven.norms, smooth.norms);
  EXPECT_EQ(uneven.master_weights, smooth.master_weights);
  // attention and the sums of losses and gradients are formed in another order than the host's own
  double const tolerance = dtype == Dtype::fp32 ? 1e-5 : dtype == Dtype::fp16 ? 2e-3 : 2e-2;
  for (std::size_t step = 0; step < host.losses.size(); ++step) {
    EXPECT_NEAR(smooth.losses[step], host.losses[step], tolerance * host.losses[step])
        << "step " << step;
    EXPECT_NEAR(smooth.norms[step], host.norms[step], 4 * tolerance * host.norms[step])
        << "step " << step;
  }
  ASSERT_EQ(smooth.master_weights.size(), host.master_weights.size());
  EXPECT_LT(test::relative_difference(smooth.master_weights, host.master_weights),
            dtype == Dtype::fp32 ? 1e-4 : 3e-2);
}

INSTANTIATE_TEST_SUITE_P(Stages, DevicePath,
                         ::testing::Combine(::testing::Range(0, 4),
                                            ::testing::Values(Dtype::fp32, Dtype::bf16,
                                                              Dtype::fp16)));

TEST(DeviceGraphs, ComputeTheSameBits) {
  for (int stage = 0; stage < 4; ++stage) {
    auto training = test::small_training(stage, Dtype::bf16);
    auto const plain = on_device(training);
    int const made = device().graphs_made, replayed = device().graphs_replayed;
    device().jitter_us = 30;
    auto const graphs = on_device(training, memory::GraphMode::capture);
    device().jitter_us = 0;
    EXPECT_EQ(graphs.losses, plain.losses) << "stage " << stage;
    EXPECT_EQ(graphs.master_weights, plain.master_weights) << "stage " << stage;
    // two blocks, forward and backward, in the two forms of the micro-steps; the first step runs
    // plainly, the second makes graphs, later ones launch them again
    EXPECT_EQ(device().graphs_made - made, 8) << "stage " << stage;
    EXPECT_EQ(device().graphs_replayed - replayed, 8 * (training.steps - 2)) << "stage " << stage;
    EXPECT_EQ(device().graphs_held, 0);
  }
}

/// Weights in the dtype of products are converted again after each update, and only then: oracle
/// are runs that convert them for each product.
TEST(DeviceAutocast, GivesTheSameBitsWithWeightsInTheDtypeOfProducts) {
  int const ranks = comm::make_mpi(test::session(), 60s)->size();
  for (int stage = 0; stage < 4; ++stage)
    for (auto const& [family, frozen] : {std::pair{"gpt2", ""},
                                         {"llama", ""},
                                         {"gpt2", R"(transformer\.h\.0\..*|transformer\.w.e.*)"}})
      for (auto const mode : {memory::GraphMode::off, memory::GraphMode::capture}) {
        auto training = test::small_training(stage, Dtype::fp32);
        training.family = family;
        training.frozen_parameters = frozen;
        training.steps = 3;  // kernels are launched, captured, replayed
        training.products = Dtype::bf16;
        auto const plain = on_device(training, mode);
        training.config.product_dtype = Dtype::bf16;
        device().jitter_us = 30;
        auto const copied = on_device(training, mode);
        device().jitter_us = 0;
        auto const what = concat("stage ", stage, ", ", family, ", frozen: ", frozen);
        EXPECT_EQ(copied.losses, plain.losses) << what;
        EXPECT_EQ(copied.norms, plain.norms) << what;
        EXPECT_EQ(copied.master_weights, plain.master_weights) << what;
        EXPECT_EQ(copied.memory.weights, plain.memory.weights) << what;
        if (stage == 3 && ranks > 1) {
          EXPECT_EQ(copied.memory.buffers, plain.memory.buffers) << what;
          continue;
        }
        // The head of the tied GPT-2 has a norm only: 128 elements with their padding.
        if (training.family == "gpt2" && training.frozen_parameters.empty()) {
          EXPECT_EQ(copied.memory.buffers - plain.memory.buffers,
                    plain.memory.weights / 2 - 2 * 128);
        }
        EXPECT_GT(copied.memory.buffers, plain.memory.buffers) << what;
      }
}

TEST(DeviceAutocast, ReplaysGraphsWithWeightsInTheDtypeOfProducts) {
  auto training = test::small_training(1, Dtype::fp32);
  training.products = training.config.product_dtype = Dtype::bf16;
  int const made = device().graphs_made, replayed = device().graphs_replayed;
  on_device(training, memory::GraphMode::capture);
  EXPECT_EQ(device().graphs_made - made, 8);
  EXPECT_EQ(device().graphs_replayed - replayed, 8 * (training.steps - 2));
}

/// Oracle are runs that compute the scale of a weight for each product.
TEST(DeviceFp8, GivesTheSameBitsWithScalesThatAreComputedOncePerUpdate) {
  for (int stage = 0; stage < 4; ++stage)
    for (auto const mode : {memory::GraphMode::off, memory::GraphMode::capture}) {
      auto training = test::small_training(stage, Dtype::bf16);
      training.fp8 = true;
      training.steps = 3;
      training.has_versions = false;
      auto const plain = on_device(training, mode);
      training.has_versions = true;
      device().jitter_us = 30;
      auto const kept = on_device(training, mode);
      device().jitter_us = 0;
      EXPECT_EQ(kept.losses, plain.losses) << "stage " << stage;
      EXPECT_EQ(kept.norms, plain.norms) << "stage " << stage;
      EXPECT_EQ(kept.master_weights, plain.master_weights) << "stage " << stage;
    }
}

/// tests/oracles/generation.py; weights only, in stage 3.
TEST(DeviceGeneration, FindsTheTokensOfTransformers) {
  auto const tokens_of = [](ConfigTree const& list) {
    train::Tokens out;
    for (auto const& token : list.as_array())
      out.push_back(static_cast<std::int32_t>(token.as_int()));
    return out;
  };
  device().jitter_us = 30;
  auto const comm =
      comm::make_device(comm::make_mpi(test::session(), 60s), 60s, comm::DeviceTransport::staged);
  auto const stored = ConfigTree::read(TESSERA_TEST_DATA "/model/data/generation.json");
  for (auto const& c : stored.as_array()) {
    std::string const family = c.at("family").as_string();
    auto const model = model::make_model(c.at("config"), Dtype::fp32);
    auto const queue = memory::make_stream_queue("compute", memory::StreamPriority::normal,
                                                 memory::GraphMode::capture);
    zero::EngineConfig config;
    config.partition = zero::partition_of(3);
    auto const sharded = zero::make_weights(config, model->units(), *comm, *queue);
    auto const weights = test::named_weights(family);
    sharded->initialize([&](memory::UnitIndex unit, int parameter, std::int64_t first,
                            std::int64_t numel, float* out) {
      auto const& spec =
          model->units()[memory::position(unit)].parameters[static_cast<std::size_t>(parameter)];
      std::vector<float> values(static_cast<std::size_t>(spec.numel()));
      weights(spec, values.data());
      std::copy_n(values.data() + first, numel, out);
    });
    EXPECT_EQ(sharded->memory().gradients + sharded->memory().master_weights, 0u);
    std::vector<train::Tokens> prompts;
    for (auto const& row : c.at("rows").as_array()) prompts.push_back(tokens_of(row.at("prompt")));
    comm::Mesh mesh(*comm);
    auto const texts = train::generate({*model, *sharded, *queue, mesh}, prompts,
                                       {.max_new_tokens = c.at("new_tokens").as_int(),
                                        .sampling = {.temperature = 0.0},
                                        .rows_per_pass = 2});
    for (std::size_t i = 0; i < texts.size(); ++i)
      EXPECT_EQ(texts[i].tokens, tokens_of(c.at("rows").as_array()[i].at("tokens")))
          << family << ", " << c.at("name").as_string() << ", prompt " << i;
  }
  device().jitter_us = 0;
}

/// The host learns of an overflow after the update has been given to the queue; nothing of it may
/// have happened.
TEST(DeviceOverflow, LeavesTheStepOutAndLowersTheScaleAsOnTheHost) {
  for (int stage = 0; stage < 4; ++stage) {
    auto training = test::small_training(stage, Dtype::fp16);
    training.config.loss_scaler.dynamic = true;
    training.config.loss_scaler.initial_scale_power =
        30;  // fp16 gradients overflow until the scale is far lower
    training.config.loss_scaler.hysteresis = 1;
    training.steps = 20;
    auto const host = on_host(training);
    device().jitter_us = 30;
    auto const there = on_device(training);
    device().jitter_us = 0;
    EXPECT_TRUE(host.skipped.front()) << "stage " << stage;
    EXPECT_FALSE(host.skipped.back()) << "stage " << stage;
    EXPECT_EQ(there.skipped, host.skipped) << "stage " << stage;
    EXPECT_EQ(there.scales, host.scales) << "stage " << stage;
    EXPECT_LT(test::relative_difference(there.master_weights, host.master_weights), 3e-2)
        << "stage " << stage;
  }
}

class DeviceSteps : public ::testing::TestWithParam<int> {};

TEST_P(DeviceSteps, AllocateFreeAndCopyNothingOnceTheyHaveBeenGoneThrough) {
  auto training = test::small_training(GetParam(), Dtype::bf16);
  training.steps = 5;
  std::vector<test::FakeDevice::Costs> before;
  training.before_step = [&](int) { before.push_back(device().costs()); };
  on_device(training);
  EXPECT_GT(before[1].allocations, before[0].allocations);
  for (std::size_t step = 3; step < before.size(); ++step)
    EXPECT_EQ(before[step], before[2]) << "step " << step - 1;
  EXPECT_EQ(before[2].pageable_copies, before[0].pageable_copies);
  EXPECT_EQ(memory::MemoryTracker::of_device().current(memory::Purpose::weights), 0u);
}

INSTANTIATE_TEST_SUITE_P(Stages, DeviceSteps, ::testing::Range(0, 4));

/// A queue that has come to a gate: what is given to it must not wait for it.
TEST(DeviceMicroBatches, AreGivenToTheQueueWithoutWaitingForIt) {
  device();
  auto const comm =
      comm::make_device(comm::make_mpi(test::session(), 60s), 60s, comm::DeviceTransport::staged);
  auto const queue = memory::make_stream_queue("compute");
  auto const model = model::make_model(test::small_gpt2(), Dtype::fp32);
  zero::EngineConfig config;
  config.partition = zero::partition_of(0);
  config.accumulation_steps = 2;
  auto const engine = zero::make_engine(config, model->units(), *comm, *queue);
  engine->initialize([](memory::UnitIndex, int, std::int64_t, std::int64_t numel, float* out) {
    std::fill(out, out + numel, 0.01f);
  });
  std::latch open(1);
  engine->begin_step();
  engine->begin_micro_step(0, 2);
  auto tokens = test::small_tokens(0, 0, comm->rank());
  auto const give = [&] {
    return model->train({tokens.data(), test::SmallTraining::rows, test::SmallTraining::length, 0},
                        {}, *engine, *queue);
  };
  auto const first = give();  // makes what later micro-batches find
  double const loss = first.value();
  queue->submit([&] { open.wait(); });
  auto const behind_the_gate = queue->record();
  engine->begin_micro_step(0, 2);
  auto const second = give();
  std::fill(tokens.begin(), tokens.end(), 1);  // the queue has its own copy
  EXPECT_FALSE(behind_the_gate.done());
  open.count_down();
  EXPECT_EQ(second.value(), loss);
}

/// The sums of the micro-batches' losses stay on the device until they have been summed over the
/// ranks with the gradient norm.
TEST(DeviceLosses, TravelWithTheGradientNorm) {
  device();
  auto const comm =
      comm::make_device(comm::make_mpi(test::session(), 60s), 60s, comm::DeviceTransport::staged);
  auto const queue = memory::make_stream_queue("compute");
  auto const model = model::make_model(test::small_gpt2(), Dtype::fp32);
  for (bool const waits : {true, false}) {  // for the sums, before the update
    zero::EngineConfig config;
    config.partition = zero::partition_of(1);
    config.accumulation_steps = 2;
    config.skip_on_nonfinite = waits;
    auto const engine = zero::make_engine(config, model->units(), *comm, *queue);
    engine->initialize([](memory::UnitIndex, int, std::int64_t, std::int64_t numel, float* out) {
      std::fill(out, out + numel, 0.01f);
    });
    for (int step = 0; step < 2; ++step) {
      engine->begin_step();
      std::vector<model::LossSum> losses;
      zero::StepValues values;
      values.counts.front() = 3;
      device().jitter_us = 60;
      for (int micro = 0; micro < 2; ++micro) {
        engine->begin_micro_step(micro, 2);
        auto const tokens = test::small_tokens(step, micro, comm->rank());
        losses.push_back(
            model->train({tokens.data(), test::SmallTraining::rows, test::SmallTraining::length, 0},
                         {}, *engine, *queue));
        ASSERT_NE(losses.back().on_device(), nullptr);
        values.device_addends.push_back(losses.back().on_device());
      }
      auto const result = engine->finish_step(1e-3, values);
      device().jitter_us = 0;
      double const own = losses[0].value() + losses[1].value();
      EXPECT_DOUBLE_EQ(result.sums.addends,
                       comm::all_reduce_value(*comm, own, comm::ReduceOp::sum));
      EXPECT_EQ(result.sums.counts.front(), 3 * comm->size());
    }
  }
}

}  // namespace
}  // namespace tessera
