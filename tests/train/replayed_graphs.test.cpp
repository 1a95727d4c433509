/// Training whose blocks are device graphs, on a device made of host memory: steady steps launch
/// the kept graphs, all others capture, and the bits are those without graphs. A kernel that took
/// an operand past its record, or a graph that was launched with those of an earlier step, would
/// change them.
#include <gtest/gtest.h>

#include "../model/family_suite.hpp"
#include "fake_device.hpp"
#include "mpi_test.hpp"
#include "small_training.hpp"
#include "tessera/comm/compose/device_collectives.hpp"
#include "tessera/comm/compose/host_collectives.hpp"
#include "tessera/memory/stream_queue.hpp"

namespace tessera {
namespace {

using namespace std::chrono_literals;
using memory::GraphLaunches;
using memory::GraphMode;

struct TrainingSetup {
  ConfigTree config;
  model::ModelOptions options = Dtype::bf16;
  int stage = 0, micro_steps = 2;
  std::int64_t live_parameters = 1'000'000'000;
};

ConfigTree gpt2_without_dropout(int layers = 2) {
  ConfigTree config = test::small_gpt2(0.0);
  config.set("n_layer", layers);
  return config;
}

/// Training and what may come between its steps.
class Training {
 public:
  Training(TrainingSetup const& setup, comm::Collectives& comm, memory::Queue& queue)
      : setup_(setup),
        comm_(comm),
        queue_(queue),
        model_(model::make_model(setup.config, setup.options)) {
    load(3);
  }

  /// Loads a checkpoint into new memory.
  void load(std::uint64_t seed) {
    zero::EngineConfig how;
    zero::ShardedWeights weights;
    weights.max_live_parameters = setup_.live_parameters;
    weights.prefetch_bucket_size = std::min(weights.prefetch_bucket_size, setup_.live_parameters);
    how.partition = zero::partition_of(setup_.stage, weights);
    how.dtype = setup_.options.dtype;
    how.max_grad_norm = 1.0;
    how.optimizer = optim::make_spec("AdamW", {{"weight_decay", 0.1}});
    how.accumulation_steps = setup_.micro_steps;
    auto next = zero::make_engine(how, model_->units(), comm_, queue_);
    next->initialize([&](memory::UnitIndex unit, int parameter, std::int64_t first,
                         std::int64_t numel, float* out) {
      auto const& spec =
          model_->units()[memory::position(unit)].parameters[static_cast<std::size_t>(parameter)];
      model::initialize_parameter(spec, seed, first, numel, out);
    });
    engine_ = std::move(next);
  }

  void step(std::int64_t rows, std::int64_t length, Recompute recompute = Recompute::none) {
    auto const before = memory::graph_launches_of_process();
    ++steps_;
    engine_->begin_step();
    std::vector<model::LossSum> losses;
    double const tokens = static_cast<double>(rows * (length - 1));
    for (int micro = 0; micro < setup_.micro_steps; ++micro) {
      engine_->begin_micro_step(micro, setup_.micro_steps);
      auto const ids = tokens_of(rows, length, micro);
      losses.push_back(model_->train(
          {ids.data(), rows, length, (micro * comm_.size() + comm_.rank()) * rows},
          {.dropout_seed = 5,
           .step = steps_,
           .gradient_scale = static_cast<float>(1.0 / (tokens * setup_.micro_steps * comm_.size())),
           .recompute = recompute},
          *engine_, queue_));
    }
    values.push_back(engine_->finish_step(1e-3).grad_norm);
    for (auto const& loss : losses) values.push_back(loss.value());
    launches.push_back(memory::graph_launches_of_process() - before);
  }
  void evaluate(std::int64_t rows, std::int64_t length) {
    auto const ids = tokens_of(rows, length, 9);
    values.push_back(model_->evaluate({ids.data(), rows, length, 0}, *engine_, queue_).value());
  }

  /// Calls of run_as_graph() per step.
  std::int64_t parts() const {
    return 2 * setup_.micro_steps * static_cast<std::int64_t>(model_->units().size() - 2);
  }

  std::vector<double> values;             ///< losses and gradient norms
  std::vector<GraphLaunches> launches{};  ///< launches of each step

 private:
  std::vector<std::int32_t> tokens_of(std::int64_t rows, std::int64_t length, int micro) const {
    Philox const random{7, steps_ * 1000 + static_cast<std::uint64_t>(micro * 100 + comm_.rank())};
    std::vector<std::int32_t> out;
    for (std::uint64_t i = 0; i < static_cast<std::uint64_t>(rows * length); ++i)
      out.push_back(static_cast<std::int32_t>(random.uniform(i) *
                                              static_cast<float>(model_->vocabulary_size())));
    return out;
  }

  TrainingSetup setup_;
  comm::Collectives& comm_;
  memory::Queue& queue_;
  std::unique_ptr<model::CausalLm> model_;
  std::unique_ptr<zero::Engine> engine_;
  std::uint64_t steps_ = 0;
};

using Script = std::function<void(Training&)>;

/// Runs @p script with and without graphs and expects equal bits. @return the steps' launches with
/// graphs
std::vector<GraphLaunches> expect_same_bits(TrainingSetup const& setup, Script const& script,
                                            std::string const& what) {
  auto& device = test::FakeDevice::of_process();
  std::vector<double> plain;
  std::vector<GraphLaunches> launches;
  for (GraphMode const mode : {GraphMode::off, GraphMode::capture}) {
    auto const comm =
        comm::make_device(comm::make_mpi(test::session(), 60s), 60s, comm::DeviceTransport::staged);
    auto const queue = memory::make_stream_queue("compute", memory::StreamPriority::normal, mode);
    Training run(setup, *comm, *queue);
    device.jitter_us = mode == GraphMode::off ? 0 : 20;
    script(run);
    device.jitter_us = 0;
    if (mode == GraphMode::off) {
      plain = run.values;
      for (auto const& of : run.launches) EXPECT_EQ(of.total(), 0) << what;
      continue;
    }
    EXPECT_EQ(run.values, plain) << what;
    for (auto const& of : run.launches) EXPECT_EQ(of.total(), run.parts()) << what;
    launches = run.launches;
  }
  EXPECT_EQ(device.graphs_held, 0) << what;
  EXPECT_EQ(device.graphs_broken, 0) << what;
  return launches;
}

class ReplayedGraphs : public ::testing::TestWithParam<int> {};

TEST_P(ReplayedGraphs, AreAllThatASteadyStepLaunches) {
  for (int const micro_steps : {1, 3}) {
    auto const launches = expect_same_bits(
        {gpt2_without_dropout(), Dtype::bf16, GetParam(), micro_steps},
        [](Training& run) {
          for (int i = 0; i < 5; ++i) run.step(2, 40);
        },
        concat(micro_steps, " micro-steps"));
    for (std::size_t i = 2; i < launches.size(); ++i)
      EXPECT_EQ(launches[i].replayed, launches[i].total()) << "step " << i + 1;
  }
}

/// Units that the buffers of a pool serve one after the other: a block has the same one in the same
/// micro-step of each step, and perhaps another one in the next micro-step.
TEST_P(ReplayedGraphs, ServeBlocksWhoseBuffersChange) {
  for (std::int64_t const live : {60'000, 90'000}) {
    auto const launches = expect_same_bits(
        {gpt2_without_dropout(4), Dtype::bf16, GetParam(), 2, live},
        [](Training& run) {
          for (int i = 0; i < 6; ++i) run.step(1, 20);
        },
        concat("room for ", live, " parameters"));
    for (std::size_t i = 3; i < launches.size(); ++i)
      EXPECT_EQ(launches[i].replayed, launches[i].total()) << live << ", step " << i + 1;
  }
}

TEST_P(ReplayedGraphs, GiveTheSameBitsWhateverComesBetweenSteps) {
  auto const launches = expect_same_bits(
      {gpt2_without_dropout(), Dtype::bf16, GetParam()},
      [](Training& run) {
        for (int i = 0; i < 4; ++i) run.step(2, 40);
        run.evaluate(2, 40);
        run.evaluate(3, 24);
        run.step(2, 40);
        run.step(2, 24);  // shorter rows
        run.step(3, 64);  // more memory than before
        run.step(2, 40);
        run.step(2, 40, Recompute::block);
        run.step(2, 40, Recompute::light);
        run.step(2, 40);
        run.load(8);  // other addresses
        for (int i = 0; i < 4; ++i) {
          run.step(2, 40);
          run.evaluate(2, 40);
        }
      },
      "");
  std::int64_t replayed = 0;
  for (auto const& of : launches) replayed += of.replayed;
  EXPECT_GT(replayed, 0);
}

/// Masks differ in each step and micro-step: kernels read from memory which ones to draw.
TEST_P(ReplayedGraphs, DrawTheDropoutOfTheirOwnStep) {
  for (auto const recompute : {Recompute::none, Recompute::light, Recompute::block}) {
    auto const launches = expect_same_bits(
        {test::small_gpt2(0.3), Dtype::bf16, GetParam(), 3},
        [&](Training& run) {
          for (int i = 0; i < 5; ++i) run.step(2, 40, recompute);
        },
        concat("dropout, recomputing ", name_of(recompute)));
    for (std::size_t i = 2; i < launches.size(); ++i)
      EXPECT_EQ(launches[i].replayed, launches[i].total()) << "step " << i + 1;
  }
}

INSTANTIATE_TEST_SUITE_P(Stages, ReplayedGraphs, ::testing::Range(0, 4));

/// Every kernel of every block records its launches: one that does not is captured each time.
TEST(ReplayedGraphsOfFamilies, AreAllThatASteadyStepLaunches) {
  auto const expect_replays = [](TrainingSetup setup, std::string const& what) {
    for (auto const recompute : {Recompute::none, Recompute::light}) {
      auto const launches = expect_same_bits(
          setup,
          [&](Training& run) {
            for (int i = 0; i < 3; ++i) run.step(1, 12, recompute);
          },
          what);
      EXPECT_EQ(launches.back().replayed, launches.back().total()) << what;
    }
  };
  for (char const* family : {"gemma", "gemma2", "gpt_bigcode", "gpt_neox", "llama", "mistral",
                             "olmo2", "phi", "phi3", "qwen2", "qwen3", "starcoder2"})
    for (auto const& c : test::family_cases(family))
      for (Dtype const dtype : {Dtype::fp32, Dtype::bf16})
        expect_replays({c.config, dtype, 0, 1}, concat(family, ", ", c.name, ", ", name_of(dtype)));
  auto const& llama = test::family_cases("llama").front().config;
  expect_replays({llama, {Dtype::fp32, Dtype::bf16}, 0, 1}, "autocast");
  model::ModelOptions fp8 = Dtype::bf16;
  fp8.fp8 = true;
  expect_replays({gpt2_without_dropout(), fp8, 0, 1}, "fp8");
  model::ModelOptions adapters = Dtype::bf16;
  adapters.lora.emplace();
  adapters.lora->targets = {"all-linear"};
  adapters.lora->dropout = 0.2;
  expect_replays({llama, adapters, 0, 1}, "LoRA with dropout");
  model::ModelOptions documents = Dtype::bf16;
  documents.documents = {1, true, true, true};
  expect_replays({llama, documents, 0, 1}, "documents");
}

}  // namespace
}  // namespace tessera
