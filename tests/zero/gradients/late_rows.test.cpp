/// Training with a tied embedding whose rows are reduced apart, against the same training whose
/// model announces no rows, so that the embedding is reduced once, at the end: the same bits.
#include "gradients/late_rows.hpp"

#include <gtest/gtest.h>

#include <algorithm>
#include <optional>
#include <ostream>

#include "mpi_test.hpp"
#include "tessera/comm/base/recording.hpp"
#include "tessera/comm/compose/host_collectives.hpp"
#include "tessera/core/random.hpp"
#include "tessera/model/decoder/initialize.hpp"
#include "tessera/model/families/registry.hpp"

namespace tessera::zero {
namespace {

using memory::UnitIndex;

/// Forwards what a model calls, but no announcement.
class Unannounced final : public memory::ParamProvider {
 public:
  explicit Unannounced(memory::ParamProvider& inner) : inner_(inner) {}
  void begin_pass(memory::Pass pass, std::vector<UnitIndex> acquisitions) override {
    inner_.begin_pass(pass, std::move(acquisitions));
  }
  memory::WeightLease acquire(UnitIndex unit, memory::Queue& compute) override {
    return inner_.acquire(unit, compute);
  }
  memory::GradientLease gradient(UnitIndex unit, memory::Queue& compute) override {
    return inner_.gradient(unit, compute);
  }
  void gradient_complete(UnitIndex unit, memory::Queue& compute) override {
    inner_.gradient_complete(unit, compute);
  }

 private:
  memory::ParamProvider& inner_;
};

struct Case {
  int stage = 1;
  Dtype dtype = Dtype::fp32;
  Dtype wire = Dtype::fp32;
  int micro_steps = 1;
  bool reduce_once = false;
  Dtype sums = Dtype::fp32;
};

std::ostream& operator<<(std::ostream& out, Case const& c) {
  return out << "stage " << c.stage << ", " << name_of(c.dtype) << ", wire " << name_of(c.wire)
             << ", " << c.micro_steps << " micro-steps" << (c.reduce_once ? ", reduced once" : "")
             << ", sums " << name_of(c.sums);
}

EngineConfig config_of(Case const& c) {
  EngineConfig out;
  out.stage = c.stage;
  out.dtype = c.dtype;
  out.communication_dtype = c.wire;
  out.accumulation_steps = c.micro_steps;
  out.accumulation_dtype = c.sums;
  out.reduce_once = c.reduce_once;
  out.max_grad_norm = 1.0;
  return out;
}

struct Sizes {
  std::int64_t vocabulary = 523, width = 12, positions = 16, rows = 2, length = 9;
};

ConfigTree gpt2(Sizes const& sizes, bool is_tied = true) {
  ConfigTree config = model::default_config("gpt2");
  config.set("n_layer", 2)
      .set("n_embd", sizes.width)
      .set("n_head", 3)
      .set("vocab_size", sizes.vocabulary)
      .set("n_positions", sizes.positions)
      .set("tie_word_embeddings", is_tied);
  for (char const* key : {"resid_pdrop", "embd_pdrop", "attn_pdrop"}) config.set(key, 0.1);
  return config;
}

struct Result {
  std::vector<double> norms;
  std::vector<float> states;                       ///< of this rank, one after the other
  std::vector<comm::CollectiveRecord> operations;  ///< of the second step
  std::optional<std::int64_t> late_rows;
  MemoryReport memory;
};

std::vector<std::int32_t> tokens_of(Sizes const& sizes, int step, int micro, int rank) {
  Philox const random{17, static_cast<std::uint64_t>(step * 1000 + micro * 100 + rank)};
  std::vector<std::int32_t> out;
  for (std::int64_t i = 0; i < sizes.rows * sizes.length; ++i) {
    float const u = random.uniform(static_cast<std::uint64_t>(i));  // low numbers are frequent
    out.push_back(static_cast<std::int32_t>(u * u * static_cast<float>(sizes.vocabulary)));
  }
  out.front() = static_cast<std::int32_t>(sizes.vocabulary) - 1;
  return out;
}

enum class Rows { announced, unannounced };

Result train(EngineConfig const& config, ConfigTree const& of_model, Sizes const& sizes, Rows how) {
  auto const comm = comm::make_recording(comm::make_mpi(test::session(), std::chrono::seconds(60)));
  auto const compute = memory::make_inline_queue("compute");
  auto const model = model::make_model(of_model, config.dtype);
  auto const engine = make_engine(config, model->units(), *comm, *compute);
  engine->initialize(
      [&](UnitIndex unit, int parameter, std::int64_t first, std::int64_t numel, float* out) {
        auto const& spec =
            model->units()[position(unit)].parameters[static_cast<std::size_t>(parameter)];
        model::initialize_parameter(spec, 3, first, numel, out);
      });
  Unannounced silent(*engine);
  memory::ParamProvider& params =
      how == Rows::announced ? static_cast<memory::ParamProvider&>(*engine) : silent;
  Result out;
  for (int step = 0; step < 3; ++step) {
    comm->clear();
    engine->begin_step();
    // the last step of an epoch may be shorter
    int const micro_steps =
        step == 2 ? (config.accumulation_steps + 1) / 2 : config.accumulation_steps;
    for (int micro = 0; micro < micro_steps; ++micro) {
      engine->begin_micro_step(micro, micro_steps);
      auto const tokens = tokens_of(sizes, step, micro, comm->rank());
      model::PassSettings settings;
      settings.step = static_cast<std::uint64_t>(step);
      settings.gradient_scale = static_cast<float>(
          engine->gradient_scale() / static_cast<double>(sizes.rows * sizes.length * comm->size()));
      model->train({tokens.data(), sizes.rows, sizes.length, 0}, settings, params, *compute);
    }
    out.norms.push_back(engine->finish_step(1e-3).grad_norm);
    if (step < 2) out.operations = comm->records();
  }
  for (auto const& state : engine->state())
    for (auto u = first_unit; u < engine->plan().end_unit(); ++u)
      out.states.insert(out.states.end(), state.unit_shards[position(u)],
                        state.unit_shards[position(u)] + engine->plan().unit(u).shard_numel);
  out.memory = engine->memory();
  out.late_rows = engine->late_rows();
  return out;
}

std::int64_t count(Result const& of, std::string_view operation, Dtype dtype) {
  return std::count_if(of.operations.begin(), of.operations.end(), [&](auto const& record) {
    return record.operation == operation && record.dtype == dtype;
  });
}

void expect_same(Result const& a, Result const& b) {
  EXPECT_EQ(a.norms, b.norms);
  ASSERT_EQ(a.states.size(), b.states.size());
  EXPECT_TRUE(std::equal(a.states.begin(), a.states.end(), b.states.begin()));
}

class LateRowsTest : public ::testing::TestWithParam<Case> {};

TEST_P(LateRowsTest, GiveTheBitsOfOneReduction) {
  Sizes const sizes;
  auto const config = config_of(GetParam());
  auto const late = train(config, gpt2(sizes), sizes, Rows::announced),
             whole = train(config, gpt2(sizes), sizes, Rows::unannounced);
  expect_same(late, whole);
  bool const several = test::session().info().world_size > 1;
  EXPECT_EQ(late.late_rows.has_value(), several);
  EXPECT_EQ(whole.late_rows, std::nullopt);
  if (several) {
    EXPECT_GT(*late.late_rows, 0);
  }
  EXPECT_EQ(count(late, "all_reduce", Dtype::int64), several ? 1 : 0);
  EXPECT_EQ(count(whole, "all_reduce", Dtype::int64), 0);
  EXPECT_EQ(count(late, "all_to_all", Dtype::fp32), several && config.stage > 0 ? 1 : 0);
  char const* const reduction = config.stage == 0 ? "all_reduce" : "reduce_scatter";
  EXPECT_EQ(count(late, reduction, config.communication_dtype),
            count(whole, reduction, config.communication_dtype) + (several ? 1 : 0));
}

INSTANTIATE_TEST_SUITE_P(
    Stages, LateRowsTest,
    ::testing::Values(Case{0}, Case{1}, Case{2}, Case{3}, Case{0, Dtype::bf16, Dtype::bf16},
                      Case{1, Dtype::bf16, Dtype::bf16}, Case{2, Dtype::bf16, Dtype::bf16},
                      Case{3, Dtype::bf16, Dtype::bf16}, Case{0, Dtype::bf16, Dtype::fp32},
                      Case{1, Dtype::bf16, Dtype::fp32}, Case{3, Dtype::bf16, Dtype::fp32},
                      Case{0, Dtype::fp32, Dtype::bf16}, Case{2, Dtype::fp32, Dtype::bf16},
                      Case{0, Dtype::fp32, Dtype::fp32, 3}, Case{1, Dtype::fp32, Dtype::fp32, 3},
                      Case{2, Dtype::fp32, Dtype::fp32, 3}, Case{3, Dtype::fp32, Dtype::fp32, 3},
                      Case{0, Dtype::bf16, Dtype::bf16, 3}, Case{1, Dtype::bf16, Dtype::bf16, 3},
                      Case{2, Dtype::bf16, Dtype::bf16, 3}, Case{3, Dtype::bf16, Dtype::bf16, 3},
                      Case{2, Dtype::bf16, Dtype::bf16, 3, true},
                      Case{3, Dtype::fp32, Dtype::fp32, 3, true},
                      Case{1, Dtype::bf16, Dtype::bf16, 3, false, Dtype::bf16},
                      Case{2, Dtype::bf16, Dtype::bf16, 3, false, Dtype::bf16}),
    [](auto const& info) { return concat("Case", info.index); });

/// After the head, before the blocks; the late rows last.
TEST(LateRows, LetTheRestBeReducedBeforeTheBlocks) {
  if (test::session().info().world_size == 1) return;
  Sizes const sizes;
  for (int const stage : {1, 2, 3}) {
    auto const late = train(config_of({.stage = stage}), gpt2(sizes), sizes, Rows::announced);
    std::vector<std::int64_t> numels;
    for (auto const& record : late.operations)
      if (record.operation == "reduce_scatter") numels.push_back(record.numel);
    ASSERT_EQ(numels.size(), 5u) << "head, embedding, two blocks, late rows";
    EXPECT_EQ(*std::max_element(numels.begin(), numels.end()), numels[1]);
    EXPECT_LT(numels[4], numels[1] / 2 + 256);
  }
}

TEST(LateRows, AreReducedWithTheRestWhereTheyAreMoreThanHalf) {
  Sizes sizes;
  sizes.vocabulary = 61, sizes.rows = 6;  // all ranks together touch nearly all rows
  for (int stage = 0; stage <= 3; ++stage) {
    auto const config = config_of({.stage = stage});
    auto const late = train(config, gpt2(sizes), sizes, Rows::announced),
               whole = train(config, gpt2(sizes), sizes, Rows::unannounced);
    expect_same(late, whole);
    EXPECT_EQ(count(late, "all_to_all", Dtype::fp32), 0);
    EXPECT_EQ(late.late_rows.value_or(0), 0);
  }
}

TEST(LateRows, AreOfTiedModelsOnly) {
  Sizes const sizes;
  auto const config = config_of({.stage = 2});
  auto const late = train(config, gpt2(sizes, false), sizes, Rows::announced);
  EXPECT_EQ(count(late, "all_reduce", Dtype::int64), 0);
  EXPECT_EQ(count(late, "all_to_all", Dtype::fp32), 0);
}

/// Where a setting lets the gradients be scaled or summed in another way, all are reduced together.
TEST(LateRows, LeaveOtherReductionsAsTheyAre) {
  Sizes const sizes;
  int const ranks = test::session().info().world_size;
  std::vector<EngineConfig> configs(3, config_of({.stage = 2}));
  configs[0].overlap_comm = false;
  configs[1].dtype = configs[1].communication_dtype = Dtype::fp16;
  configs[2].sum_order = SumOrder::tree;
  for (auto const& config : configs) {
    if (config.sum_order == SumOrder::tree && (ranks & (ranks - 1)) != 0) continue;
    auto const late = train(config, gpt2(sizes), sizes, Rows::announced),
               whole = train(config, gpt2(sizes), sizes, Rows::unannounced);
    expect_same(late, whole);
    EXPECT_EQ(late.operations.size(), whole.operations.size());
  }
}

/// The first step allocates the buffers, and the memory report has them.
TEST(LateRows, CountTheirBuffers) {
  if (test::session().info().world_size == 1) return;
  Sizes const sizes;
  auto const config = config_of({.stage = 1});
  auto const late = train(config, gpt2(sizes), sizes, Rows::announced),
             whole = train(config, gpt2(sizes), sizes, Rows::unannounced);
  EXPECT_GT(late.memory.buffers, whole.memory.buffers);
  EXPECT_EQ(late.memory.gradients, whole.memory.gradients);
}

}  // namespace
}  // namespace tessera::zero
