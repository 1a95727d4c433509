/// The planned bytes against those of an engine that has trained.
#include "tessera/train/setup/memory_plan.hpp"

#include <gtest/gtest.h>

#include <filesystem>

#include "engine_settings.hpp"
#include "mpi_test.hpp"
#include "recording_collectives.hpp"
#include "small_training.hpp"
#include "tessera/comm/compose/device_collectives.hpp"
#include "tessera/comm/compose/host_collectives.hpp"
#include "tessera/memory/device.hpp"
#include "tessera/memory/stream_queue.hpp"

namespace tessera::train {
namespace {

constexpr std::int64_t rows = 2, length = 40;

ConfigTree medium_gpt2() {
  ConfigTree config = test::small_gpt2();
  config.set("n_embd", 240).set("vocab_size", 3001).set("n_layer", 4);
  return config;
}

void train_micro_steps(int micro_steps, model::CausalLm& model, model::Batch const& batch,
                       zero::Engine& engine, memory::Queue& compute) {
  for (int micro = 0; micro < micro_steps; ++micro) {
    engine.begin_micro_step(micro, micro_steps);
    model.train(batch, {}, engine, compute).value();
  }
}

/// An optimizer step; gradients of ones would do, for only the allocations count.
zero::MemoryReport train_one_step(zero::EngineConfig const& config, model::CausalLm& model,
                                  comm::Collectives& comm, memory::Queue& compute) {
  auto const engine = zero::make_engine(config, model.units(), comm, compute);
  engine->initialize([](memory::UnitIndex, int, std::int64_t, std::int64_t numel, float* out) {
    std::fill_n(out, numel, 0.01f);
  });
  std::vector<std::int32_t> const tokens(static_cast<std::size_t>(rows * length), 3);
  engine->begin_step();
  train_micro_steps(config.accumulation_steps, model, {tokens.data(), rows, length, 0}, *engine,
                    compute);
  engine->finish_step(1e-3);
  return engine->memory();
}

void expect_near(std::size_t planned, std::size_t real, char const* what) {
  EXPECT_LE(std::abs(static_cast<double>(planned) - static_cast<double>(real)),
            0.01 * static_cast<double>(real) + 4096.0)
      << what << ": planned " << planned << ", allocated " << real;
}

struct Case {
  int stage;
  Dtype dtype;
  int accumulation;
};

class MemoryPlanTest : public ::testing::TestWithParam<Case> {};

TEST_P(MemoryPlanTest, IsWhatARunAllocates) {
  auto const comm = comm::make_mpi(test::session(), std::chrono::seconds(60));
  auto const [stage, dtype, accumulation] = GetParam();
  auto const model = model::make_model(medium_gpt2(), dtype);
  PlannedRun run{
      .ranks = comm->size(), .space = memory::MemorySpace::host, .rows = rows, .sequence = length};
  run.engine.partition = zero::partition_of(stage);
  run.engine.dtype = run.engine.communication_dtype = dtype;
  run.engine.accumulation_steps = accumulation;
  run.engine.reduce_bucket_size = 200'000;
  test::set_prefetch(run.engine, 200'000);
  auto& tracker = memory::MemoryTracker::of_process();
  std::size_t const before = tracker.current_total();
  MemoryPlan const plan = plan_memory(*model, run);
  EXPECT_EQ(tracker.current_total(), before);
  auto const compute = memory::make_inline_queue("compute");
  auto const real = train_one_step(run.engine, *model, *comm, *compute);
  expect_near(plan.states.weights, real.weights, "weights");
  expect_near(plan.states.gradients, real.gradients, "gradients");
  expect_near(plan.states.master_weights, real.master_weights, "master weights");
  expect_near(plan.states.optimizer_state, real.optimizer_state, "optimizer states");
  expect_near(plan.states.buffers, real.buffers, "buffers");
  EXPECT_EQ(plan.states.formula, real.formula);
  EXPECT_EQ(plan.activations,
            model->activation_bytes({.rows = rows, .sequence = length}, memory::MemorySpace::host));
  EXPECT_GT(plan.activations, 0u);
}

INSTANTIATE_TEST_SUITE_P(Stages, MemoryPlanTest,
                         ::testing::Values(Case{0, Dtype::fp32, 1}, Case{0, Dtype::bf16, 2},
                                           Case{1, Dtype::bf16, 2}, Case{2, Dtype::fp32, 1},
                                           Case{2, Dtype::bf16, 2}, Case{3, Dtype::fp32, 2},
                                           Case{3, Dtype::bf16, 1}),
                         [](auto const& of) {
                           return concat("Stage", of.param.stage, name_of(of.param.dtype), "x",
                                         of.param.accumulation);
                         });

/// The memory of a save is counted with the steps; its waits and copies are no work of theirs. With
/// them a stage 1 whose network is slow would seem to gather its weights twice per step.
TEST(PlannedSteps, EndWithTheGatherOfTheWeights) {
  auto const model = model::make_model(medium_gpt2(), Dtype::fp32);
  PlannedRun run{.ranks = 4, .space = memory::MemorySpace::host, .rows = rows, .sequence = length};
  run.engine.partition = zero::partition_of(1);
  auto const planned = plan_steps(*model, run, 1);
  auto const queue_of = [&](int piece) {
    auto const queue = planned.work.at(static_cast<std::size_t>(piece)).queue;
    return planned.queues.at(static_cast<std::size_t>(queue));
  };
  auto const is_gather = [](memory::PlannedWork const& piece) {
    return piece.name == std::string_view("all_gather");
  };
  auto const last = std::find_if(planned.work.rbegin(), planned.work.rend(), is_gather);
  ASSERT_NE(last, planned.work.rend());
  auto const gather = static_cast<int>(planned.work.rend() - last) - 1;
  for (int i = gather + 1; i < static_cast<int>(planned.work.size()); ++i)
    for (int const before : planned.work[static_cast<std::size_t>(i)].after)
      EXPECT_FALSE(queue_of(i) == "compute" && before >= gather &&
                   queue_of(before) == "collectives");
}

/// The first units of the next pass are gathered while later ones are updated, in host memory and
/// on a device.
TEST(PlannedSteps, GatherTheNextStepsUnitsWhileLaterOnesAreUpdated) {
  auto const model = model::make_model(medium_gpt2(), Dtype::bf16);
  for (auto const space : {memory::MemorySpace::host, memory::MemorySpace::device})
    for (bool const overlaps : {true, false}) {
      PlannedRun run{.ranks = 4, .space = space, .rows = rows, .sequence = length};
      run.engine.partition = zero::partition_of(3);
      run.engine.dtype = run.engine.communication_dtype = Dtype::bf16;
      run.engine.overlap_comm = overlaps;
      auto const planned = plan_steps(*model, run, 1);
      int updates = 0, ahead = 0;
      for (std::size_t i = planned.work.size(); i-- > planned.first_of_second;) {
        auto const& piece = planned.work[i];
        updates += piece.kind == memory::PlannedWork::Kind::update;
        bool const is_gather = piece.name == std::string_view("all_gather");
        if (is_gather && updates > 0) ++ahead;
        if (piece.name == std::string_view("all_reduce")) break;  // the norm's
      }
      EXPECT_GE(updates, 3);
      EXPECT_EQ(ahead > 1, overlaps) << "space " << static_cast<int>(space);
    }
}

/// The plan of the second step has the operations of a run with their bytes.
TEST_P(MemoryPlanTest, SendsWhatARunSends) {
  auto const [stage, dtype, accumulation] = GetParam();
  auto const model = model::make_model(medium_gpt2(), dtype);
  auto const comm = comm::make_recording(comm::make_mpi(test::session(), std::chrono::seconds(60)));
  PlannedRun run{
      .ranks = comm->size(), .space = memory::MemorySpace::host, .rows = rows, .sequence = length};
  run.engine.partition = zero::partition_of(stage);
  run.engine.dtype = run.engine.communication_dtype = dtype;
  run.engine.accumulation_steps = accumulation;
  run.engine.reduce_bucket_size = 200'000;
  test::set_prefetch(run.engine, 200'000);
  auto const planned = plan_steps(*model, run, accumulation);
  auto const compute = memory::make_inline_queue("compute");
  auto const engine = zero::make_engine(run.engine, model->units(), *comm, *compute);
  engine->initialize([](memory::UnitIndex, int, std::int64_t, std::int64_t numel, float* out) {
    std::fill_n(out, numel, 0.01f);
  });
  std::vector<std::int32_t> const tokens(static_cast<std::size_t>(rows * length), 3);
  for (int step = 0; step < 2; ++step) {
    comm->clear();
    engine->begin_step();
    train_micro_steps(accumulation, *model, {tokens.data(), rows, length, 0}, *engine, *compute);
    engine->finish_step(1e-3);
  }
  std::vector<std::pair<std::string, std::size_t>> sent, expected;
  for (auto const& record : comm->records())
    if (comm->rank() == 0) expected.emplace_back(record.operation, record.bytes_sent);
  for (std::size_t i = planned.first_of_second; i < planned.work.size(); ++i)
    if (planned.work[i].kind == memory::PlannedWork::Kind::collective)
      sent.emplace_back(planned.work[i].name, planned.work[i].sent);
  if (comm->rank() != 0) sent.clear();
  EXPECT_EQ(sent, expected);
}

TEST(MemoryPlan, CountsBothSpacesOfAnOffload) {
  auto const model = model::make_model(medium_gpt2(), Dtype::bf16);
  PlannedRun run{.ranks = 4, .rows = rows, .sequence = length};
  run.engine.partition = zero::partition_of(2);
  run.engine.dtype = run.engine.communication_dtype = Dtype::bf16;
  auto const resident = plan_memory(*model, run);
  test::states_of(run.engine).optimizer_offload.emplace();
  auto const offloaded = plan_memory(*model, run);
  EXPECT_EQ(offloaded.host.bytes.at(memory::Purpose::optimizer_state),
            resident.device.bytes.at(memory::Purpose::optimizer_state));
  EXPECT_FALSE(offloaded.device.bytes.contains(memory::Purpose::optimizer_state));
  EXPECT_LT(offloaded.device.total(), resident.device.total());
  auto const copies = 12 * resident.device.bytes.at(memory::Purpose::master_weights) / 4;
  EXPECT_GT(resident.saving, copies) << "copies of states of a device, for the files";
  EXPECT_LE(resident.saving, copies + 4 * (std::size_t{16} << 20)) << "and the pieces on their way";
  EXPECT_EQ(offloaded.saving, 0u);
}

TEST(MemoryPlan, CountsCheckpointsInMemory) {
  auto const model = model::make_model(medium_gpt2(), Dtype::bf16);
  config::TrainingArguments arguments;
  EXPECT_EQ(copies_for_memory_saves(arguments, 4), 0);
  arguments.memory_save_steps.count = config::MemorySaveSteps::automatic;
  EXPECT_EQ(copies_for_memory_saves(arguments, 1), 2) << "two checkpoints";
  EXPECT_EQ(copies_for_memory_saves(arguments, 4), 4) << "and copies of another node's";
  for (auto const space : {memory::MemorySpace::device, memory::MemorySpace::host}) {
    PlannedRun run{.ranks = 4, .space = space, .rows = rows, .sequence = length};
    run.engine.partition = zero::partition_of(2);
    run.engine.dtype = run.engine.communication_dtype = Dtype::bf16;
    (void)plan_memory(*model, run);  // the first plan counts what a process allocates once
    auto const without = plan_memory(*model, run);
    run.memory_copies = 4;
    auto const with = plan_memory(*model, run);
    auto const on_device = space == memory::MemorySpace::device;
    auto const& states = on_device ? without.device : without.host;
    std::size_t const copies = on_device ? 4 : 5;  // states of the host need a snapshot, too
    EXPECT_EQ(with.memory_saves, copies * 3 * states.bytes.at(memory::Purpose::master_weights));
    EXPECT_EQ(with.host.total(), without.host.total() + with.memory_saves);
    EXPECT_EQ(with.device.total(), without.device.total());
    EXPECT_EQ(with.total(), without.total() + with.memory_saves);
    EXPECT_EQ(with.in_host(), without.in_host() + (on_device ? with.memory_saves : 0));
  }
}

TEST(MemoryPlan, CountsTheWorkspaceOfCudnnsAttention) {
  ConfigTree config = medium_gpt2();
  config.set("n_embd", 256).set("n_head", 4);
  auto const model = model::make_model(config, Dtype::bf16);
  PlannedRun run{.ranks = 4, .rows = rows, .sequence = length};
  run.engine.dtype = run.engine.communication_dtype = Dtype::bf16;
  (void)plan_memory(*model, run);  // the first plan counts what a process allocates once
  auto const portable = plan_memory(*model, run);
  run.cudnn.emplace();
  auto const cudnn = plan_memory(*model, run);
  std::size_t const bytes = rows * 4 * (2 * 64 * 128 + 4 * length);  // dP and one sum per row
  EXPECT_EQ(portable.attention_workspace, 0u);
  EXPECT_EQ(cudnn.attention_workspace, bytes);
  EXPECT_EQ(cudnn.total(), portable.total() + bytes);
  EXPECT_EQ(cudnn.device.total(), portable.device.total() + bytes);
  EXPECT_EQ(cudnn.activations, portable.activations);
}

TEST(MemoryPlan, CountsTheReferenceModelOfPreferences) {
  auto const model = model::make_model(medium_gpt2(), Dtype::fp32);
  config::TrainingArguments arguments;
  auto config = config::resolve(arguments, 2, 240);
  config.stage = 2;
  auto const planned = [&] {
    auto run = planned_run(arguments, config, {}, memory::MemorySpace::host, 1);
    run.sequence = length;
    (void)plan_memory(*model, run);  // the first plan counts what a process allocates once
    return std::pair(run.rows, plan_memory(*model, run));
  };
  auto const [rows_alone, alone] = planned();
  arguments.task = config::Task::dpo;
  auto const [rows_of_pairs, with_reference] = planned();
  EXPECT_EQ(rows_of_pairs, 2 * rows_alone) << "a chosen and a rejected answer";
  EXPECT_EQ(with_reference.states.weights, 2 * alone.states.weights);
  EXPECT_EQ(with_reference.host.bytes.at(memory::Purpose::weights),
            2 * alone.host.bytes.at(memory::Purpose::weights));
  arguments.precompute_ref_log_probs = true;
  EXPECT_EQ(planned().second.states.weights, alone.states.weights);
  arguments.precompute_ref_log_probs = false;
  EXPECT_FALSE(reference_weights(arguments, config, model::LoraOptions{}))
      << "new adapters leave the reference in the model";
}

TEST(MemoryPlan, CudnnComputesUnlessTheOptionsExcludeIt) {
  config::TrainingArguments arguments;
  ASSERT_TRUE(planned_cudnn(arguments));
  EXPECT_TRUE(planned_cudnn(arguments)->deterministic);
  arguments.deterministic = false;
  EXPECT_FALSE(planned_cudnn(arguments)->deterministic);
  auto other = arguments;
  other.device_attention = kernels::DeviceAttention::portable;
  EXPECT_FALSE(planned_cudnn(other));
  other = arguments;
  other.use_cpu = true;
  EXPECT_FALSE(planned_cudnn(other));
  other = arguments;
  other.device_memory = "1GiB";
  EXPECT_FALSE(planned_cudnn(other)) << "a simulated device has the portable kernel";
}

TEST(MemoryPlan, OfInferenceHasWeightsOnly) {
  auto const comm = comm::make_mpi(test::session(), std::chrono::seconds(60));
  auto const compute = memory::make_inline_queue("compute");
  for (int const stage : {0, 3}) {
    auto const model = model::make_model(medium_gpt2(), Dtype::bf16);
    PlannedRun run{.ranks = comm->size(),
                   .space = memory::MemorySpace::host,
                   .rows = rows,
                   .sequence = length};
    run.pass = memory::Pass::evaluation;
    run.engine.partition = zero::partition_of(stage);
    run.engine.dtype = Dtype::bf16;
    auto const plan = plan_memory(*model, run);
    auto const weights = zero::make_weights(run.engine, model->units(), *comm, *compute);
    weights->initialize([](memory::UnitIndex, int, std::int64_t, std::int64_t numel, float* out) {
      std::fill_n(out, numel, 0.01f);
    });
    std::vector<std::int32_t> const tokens(static_cast<std::size_t>(rows * length), 3);
    model->evaluate({tokens.data(), rows, length, 0}, *weights, *compute).value();
    auto const real = weights->memory();
    expect_near(plan.states.weights, real.weights, "weights");
    expect_near(plan.states.buffers, real.buffers, "buffers");
    EXPECT_EQ(plan.states.formula, real.formula);
    EXPECT_EQ(real.gradients + real.master_weights + real.optimizer_state, 0u);
    EXPECT_EQ(plan.total(), plan.states.weights + plan.states.buffers + plan.activations);
    EXPECT_GT(plan.activations, 0u);
  }
}

enum class Place { host, drive };
struct OffloadCase {
  int stage;
  Place optimizer;
  bool offloads_weights;
};

/// Oracle: an engine on a simulated device that has trained a step.
TEST(MemoryPlan, KnowsWhatLeavesADevice) {
  memory::simulate_device({.memory_bytes = std::size_t{1} << 30});
  auto const comm = comm::make_device(comm::make_mpi(test::session(), std::chrono::seconds(60)),
                                      std::chrono::seconds(60), comm::DeviceTransport::staged);
  auto const model = model::make_model(medium_gpt2(), Dtype::bf16);
  for (auto const& [stage, optimizer, offloads_weights] :
       {OffloadCase{1, Place::host, false}, OffloadCase{2, Place::host, false},
        OffloadCase{3, Place::host, true}, OffloadCase{2, Place::drive, false}}) {
    SCOPED_TRACE(stage);
    PlannedRun run{.ranks = comm->size(), .rows = rows, .sequence = length};
    run.engine.partition = zero::partition_of(stage);
    run.engine.dtype = run.engine.communication_dtype = Dtype::bf16;
    test::set_prefetch(run.engine, 200'000);
    test::states_of(run.engine).optimizer_offload = {.tile_numel = 100'000, .buffer_count = 2};
    if (optimizer == Place::drive) {
      memory::SwapOptions transfers;
      transfers.directories = {std::filesystem::path(::testing::TempDir())};
      test::states_of(run.engine).optimizer_swap = {transfers, 100'000, 2};
    }
    if (offloads_weights) test::weights_of(run.engine).weight_offload.emplace();
    auto const plan = plan_memory(*model, run);
    auto const compute = memory::make_stream_queue("compute");
    auto const real = train_one_step(run.engine, *model, *comm, *compute);
    expect_near(plan.states.weights, real.weights, "weights");
    expect_near(plan.states.gradients, real.gradients, "gradients");
    expect_near(plan.states.master_weights, real.master_weights, "master weights");
    expect_near(plan.states.optimizer_state, real.optimizer_state, "optimizer states");
    expect_near(plan.states.buffers, real.buffers, "buffers");
    expect_near(plan.in_host(), real.offloaded, "host memory");
    EXPECT_EQ(plan.states.swapped, real.swapped);
    EXPECT_GT(real.offloaded, 0u);
  }
}

/// Oracle: an engine on a simulated device that has trained a step.
TEST(MemoryPlan, CountsWeightsInTheDtypeOfProducts) {
  memory::simulate_device({.memory_bytes = std::size_t{1} << 30});
  auto const comm = comm::make_device(comm::make_mpi(test::session(), std::chrono::seconds(60)),
                                      std::chrono::seconds(60), comm::DeviceTransport::staged);
  auto const model = model::make_model(medium_gpt2(), {Dtype::fp32, Dtype::bf16});
  for (int const stage : {0, 1, 2}) {
    PlannedRun run{.ranks = comm->size(), .rows = rows, .sequence = length};
    run.engine.partition = zero::partition_of(stage);
    auto const without = plan_memory(*model, run);
    run.engine.product_dtype = Dtype::bf16;
    auto const plan = plan_memory(*model, run);
    auto const compute = memory::make_stream_queue("compute");
    auto const real = train_one_step(run.engine, *model, *comm, *compute);
    EXPECT_EQ(plan.states.weights, real.weights) << "stage " << stage;
    EXPECT_EQ(plan.states.buffers, real.buffers) << "stage " << stage;
    auto const copies = plan.states.buffers - without.states.buffers;
    EXPECT_EQ(copies, plan.device.bytes.at(memory::Purpose::weights) -
                          without.device.bytes.at(memory::Purpose::weights));
    EXPECT_LT(copies, plan.states.weights / 2) << "the head has a norm only";
    EXPECT_GT(copies, plan.states.weights / 2 - 4096);
    EXPECT_LT(plan.activations, without.activations) << "no product converts its weight";
  }
}

/// GPT-3's shape: 174.6 billion parameters, 16 bytes each at stage 3 over the ranks.
TEST(MemoryPlan, OfAModelThatNoRankCouldHold) {
  ConfigTree config = model::default_config("gpt2");
  config.set("n_layer", 96).set("n_embd", 12288).set("n_head", 96).set("n_positions", 2048);
  auto const model = model::make_model(config, Dtype::bf16);
  PlannedRun run{.ranks = 1024, .sequence = 2048, .recompute = Recompute::block};
  run.engine.partition = zero::partition_of(3);
  run.engine.dtype = run.engine.communication_dtype = Dtype::bf16;
  auto const plan = plan_memory(*model, run);
  double const parameters = 96 * (12.0 * 12288 * 12288 + 13 * 12288) + (50257.0 + 2048 + 2) * 12288;
  EXPECT_NEAR(static_cast<double>(plan.states.weights), 2 * parameters / 1024,
              1e-3 * parameters / 512);
  EXPECT_NEAR(static_cast<double>(plan.states.optimizer_state), 8 * parameters / 1024,
              1e-3 * parameters / 128);
  EXPECT_GT(plan.states.buffers, 2 * 12u * 12288 * 12288) << "a gathered block";
}

}  // namespace
}  // namespace tessera::train
