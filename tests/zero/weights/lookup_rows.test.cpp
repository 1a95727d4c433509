/// Training that gathers the rows of an embedding's lookup apart, against the same training whose
/// model announces no lookup, so that the embedding is gathered completely: the same bits.
#include "weights/lookup_rows.hpp"

#include <gtest/gtest.h>

#include <algorithm>
#include <functional>
#include <limits>
#include <map>
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

enum class Lookups { announced, unannounced };

/// Forwards what a model calls, and announcements of lookups only on request.
class Announcing final : public memory::ParamProvider {
 public:
  Announcing(memory::ParamProvider& inner, Lookups how) : inner_(inner), how_(how) {}
  void announce_lookup(UnitIndex unit, std::size_t parameter, memory::RowList rows) override {
    if (how_ == Lookups::announced) inner_.announce_lookup(unit, parameter, rows);
  }
  bool announces_next_lookup() const override {
    return how_ == Lookups::announced && inner_.announces_next_lookup();
  }
  void announce_next_lookup(UnitIndex unit, std::size_t parameter, memory::RowList rows) override {
    inner_.announce_next_lookup(unit, parameter, rows);
  }
  void begin_pass(memory::Pass pass, std::vector<UnitIndex> acquisitions) override {
    inner_.begin_pass(pass, std::move(acquisitions));
  }
  memory::WeightLease acquire(UnitIndex unit, memory::Queue& compute) override {
    if (before_acquire) before_acquire(unit);
    return inner_.acquire(unit, compute);
  }
  void announce_rows(UnitIndex unit, std::size_t parameter, memory::RowList rows) override {
    inner_.announce_rows(unit, parameter, rows);
  }
  void rows_remain(UnitIndex unit, memory::Queue& compute) override {
    inner_.rows_remain(unit, compute);
  }
  memory::GradientLease gradient(UnitIndex unit, memory::Queue& compute) override {
    return inner_.gradient(unit, compute);
  }
  void gradient_complete(UnitIndex unit, memory::Queue& compute) override {
    inner_.gradient_complete(unit, compute);
  }

  std::function<void(UnitIndex)> before_acquire;

 private:
  memory::ParamProvider& inner_;
  Lookups how_;
};

struct Case {
  int stage = 1;
  Dtype dtype = Dtype::fp32;
  bool is_tied = true;
  int micro_steps = 1;
  std::int64_t prefetch = 3000;
};

std::ostream& operator<<(std::ostream& out, Case const& c) {
  return out << "stage " << c.stage << ", " << name_of(c.dtype) << (c.is_tied ? ", tied" : "")
             << ", " << c.micro_steps << " micro-steps, prefetch bucket " << c.prefetch;
}

EngineConfig config_of(Case const& c) {
  EngineConfig out;
  out.stage = c.stage;
  out.dtype = out.communication_dtype = c.dtype;
  out.accumulation_steps = c.micro_steps;
  out.prefetch_bucket_size = c.prefetch;
  out.max_grad_norm = 1.0;
  return out;
}

constexpr std::int64_t vocabulary = 1523, width = 12, positions = 16, samples = 2, length = 9;

ConfigTree gpt2(bool is_tied) {
  ConfigTree config = model::default_config("gpt2");
  config.set("n_layer", 3)
      .set("n_embd", width)
      .set("n_head", 3)
      .set("vocab_size", vocabulary)
      .set("n_positions", positions)
      .set("tie_word_embeddings", is_tied);
  for (char const* key : {"resid_pdrop", "embd_pdrop", "attn_pdrop"}) config.set(key, 0.1);
  return config;
}

std::vector<std::int32_t> tokens_of(int step, int micro, int rank) {
  Philox const random{23, static_cast<std::uint64_t>(step * 1000 + micro * 100 + rank)};
  std::vector<std::int32_t> out;
  for (std::int64_t i = 0; i < samples * length; ++i) {
    float const u = random.uniform(static_cast<std::uint64_t>(i));  // low numbers are frequent
    out.push_back(static_cast<std::int32_t>(u * u * static_cast<float>(vocabulary)));
  }
  out.front() = vocabulary - 1;
  return out;
}

/// What happens in a run besides plain steps.
enum class Event { none, evaluations, other_tokens, resume, skipped_step };

struct Result {
  std::vector<double> losses, norms;
  std::vector<float> states;                       ///< of this rank, one after the other
  std::vector<comm::CollectiveRecord> operations;  ///< of the second step
  std::optional<std::int64_t> rows;
  MemoryReport memory;
};

struct Run {
  Run(EngineConfig const& config, bool is_tied, Lookups how)
      : comm(comm::make_recording(comm::make_mpi(test::session(), std::chrono::seconds(60)))),
        compute(memory::make_inline_queue("compute")),
        model(model::make_model(gpt2(is_tied), config.dtype)),
        engine(make_engine(config, model->units(), *comm, *compute)),
        params(*engine, how),
        micro_steps(config.accumulation_steps) {
    engine->initialize(
        [&](UnitIndex unit, int parameter, std::int64_t first, std::int64_t numel, float* out) {
          auto const& spec =
              model->units()[position(unit)].parameters[static_cast<std::size_t>(parameter)];
          model::initialize_parameter(spec, 3, first, numel, out);
        });
  }
  model::PassSettings settings(int step, float scale = 1.0f) const {
    model::PassSettings out;
    out.step = static_cast<std::uint64_t>(step);
    out.gradient_scale =
        scale * static_cast<float>(engine->gradient_scale() /
                                   static_cast<double>(samples * length * comm->size()));
    return out;
  }
  /// @param told the step whose tokens are announced for the next one
  void step(int number, int told, Result& out, float scale = 1.0f) {
    engine->begin_step();
    for (int micro = 0; micro < micro_steps; ++micro) {
      if (micro + 1 == micro_steps && params.announces_next_lookup()) {
        auto const next = tokens_of(told, 0, comm->rank());
        model->announce_next({next.data(), samples, length, 0}, params);
      }
      engine->begin_micro_step(micro, micro_steps);
      auto const tokens = tokens_of(number, micro, comm->rank());
      out.losses.push_back(model
                               ->train({tokens.data(), samples, length, 0}, settings(number, scale),
                                       params, *compute)
                               .value());
    }
    out.norms.push_back(engine->finish_step(1e-2).grad_norm);
  }
  void evaluate(Result& out) {
    auto const tokens = tokens_of(77, 0, comm->rank());
    out.losses.push_back(
        model->evaluate({tokens.data(), samples, length, 0}, params, *compute).value());
  }
  void keep_state(Result& out) {
    for (auto const& state : engine->state())
      for (auto u = first_unit; u < engine->plan().end_unit(); ++u)
        out.states.insert(out.states.end(), state.unit_shards[position(u)],
                          state.unit_shards[position(u)] + engine->plan().unit(u).shard_numel);
  }

  std::unique_ptr<comm::RecordingCollectives> comm;
  std::unique_ptr<memory::Queue> compute;
  std::unique_ptr<model::CausalLm> model;
  std::unique_ptr<Engine> engine;
  Announcing params;
  int micro_steps;
};

Result train(Case const& c, Lookups how, Event event = Event::none) {
  Run run(config_of(c), c.is_tied, how);
  Result out;
  for (int step = 0; step < 4; ++step) {
    run.comm->clear();
    if (event == Event::evaluations && step != 2) run.evaluate(out);
    // one rank computes other tokens than it has said, the others the same
    int const told = event == Event::other_tokens && run.comm->rank() == 0 ? step + 9 : step + 1;
    float const infinite = std::numeric_limits<float>::infinity();
    run.step(step, told, out, event == Event::skipped_step && step == 1 ? infinite : 1.0f);
    if (step == 1) out.operations = run.comm->records();
    if (event == Event::resume && step == 2) {
      run.keep_state(out);
      run.engine->load_state(run.engine->optimizer_steps(), run.engine->scaler_state());
    }
  }
  run.keep_state(out);
  out.rows = run.engine->lookup_rows();
  out.memory = run.engine->memory();
  return out;
}

std::size_t bytes_of(Result const& of, std::string_view operation, Dtype dtype) {
  std::size_t sum = 0;
  for (auto const& record : of.operations)
    if (record.operation == operation && record.dtype == dtype) sum += record.bytes_sent;
  return sum;
}

void expect_same(Result const& a, Result const& b) {
  EXPECT_EQ(a.losses, b.losses);
  ASSERT_EQ(a.norms.size(), b.norms.size());
  for (std::size_t i = 0; i < a.norms.size(); ++i)
    EXPECT_TRUE(a.norms[i] == b.norms[i] || (a.norms[i] != a.norms[i] && b.norms[i] != b.norms[i]));
  EXPECT_EQ(a.states, b.states);
}

bool several() { return test::session().info().world_size > 1; }

class LookupRowsTest : public ::testing::TestWithParam<Case> {};

TEST_P(LookupRowsTest, GiveTheBitsOfACompleteGather) {
  for (auto const event :
       {Event::none, Event::evaluations, Event::other_tokens, Event::resume, Event::skipped_step}) {
    SCOPED_TRACE(static_cast<int>(event));
    // AtStage3OtherTokensThanAnnouncedAreAnError
    if (event == Event::other_tokens && GetParam().stage == 3) continue;
    auto const apart = train(GetParam(), Lookups::announced, event),
               whole = train(GetParam(), Lookups::unannounced, event);
    expect_same(apart, whole);
    EXPECT_EQ(whole.rows.value_or(0), 0);
    bool const gathers = several() && GetParam().stage > 0;
    EXPECT_EQ(apart.rows.has_value(), gathers);
    if (gathers) {
      EXPECT_GT(*apart.rows, 0);
    }
  }
}

INSTANTIATE_TEST_SUITE_P(
    Stages, LookupRowsTest,
    ::testing::Values(Case{0}, Case{1}, Case{2}, Case{3}, Case{1, Dtype::fp32, false},
                      Case{2, Dtype::fp32, false}, Case{3, Dtype::fp32, false},
                      Case{1, Dtype::bf16}, Case{2, Dtype::bf16}, Case{3, Dtype::bf16},
                      Case{1, Dtype::fp16}, Case{3, Dtype::fp16}, Case{1, Dtype::fp32, true, 3},
                      Case{2, Dtype::bf16, true, 3}, Case{3, Dtype::fp32, true, 3},
                      Case{3, Dtype::bf16, false, 3}, Case{3, Dtype::fp32, true, 1, 0},
                      Case{3, Dtype::bf16, false, 2, 0},
                      Case{3, Dtype::fp32, false, 2, 50'000'000}),
    [](auto const& info) { return concat("Case", info.index); });

/// The rows are gathered before the pass begins, and the other ranks would not send more.
TEST(LookupRows, AtStage3OtherTokensThanAnnouncedAreAnError) {
  if (!several()) return;
  Result out;
  zero::Run run(config_of({.stage = 3}), true, Lookups::announced);
  run.step(0, 9, out);
  EXPECT_THROW(run.step(1, 2, out), InternalError);
}

std::int64_t round_up(std::int64_t value, std::int64_t to) { return (value + to - 1) / to * to; }

/// Elements that the second step sends for rows, from the tokens of all ranks, element by element.
struct Sent {
  std::int64_t to_blocks = 0;  ///< from the owner of a row to those who gather it
  std::int64_t block = 0;      ///< gathered from each rank
};

Sent sent_for_rows(int step, int ranks, int rank, std::int64_t shard) {
  std::vector<bool> is_touched(vocabulary, false);
  for (int q = 0; q < ranks; ++q)
    for (auto const token : tokens_of(step, 0, q))
      is_touched[static_cast<std::size_t>(token)] = true;
  std::vector<std::int64_t> places;  // in the unit, by place among the rows; -1: a gap
  auto const add = [&](std::int64_t begin, std::int64_t numel) {
    for (std::int64_t i = 0; i < numel; ++i) places.push_back(begin + i);
  };
  for (std::int64_t row = 0; row < vocabulary; ++row)
    if (is_touched[static_cast<std::size_t>(row)]) add(row * width, width);
  places.resize(static_cast<std::size_t>(round_up(static_cast<std::int64_t>(places.size()), 32)),
                -1);
  add(round_up(vocabulary * width, 32), positions * width);
  auto const numel = round_up(static_cast<std::int64_t>(places.size()), 32);
  Sent out;
  out.block = round_up((numel + ranks - 1) / ranks, 32);
  for (std::size_t i = 0; i < places.size(); ++i)
    if (places[i] >= 0 && places[i] / shard == rank &&
        static_cast<std::int64_t>(i) / out.block != rank)
      ++out.to_blocks;
  return out;
}

/// At stage 3 the rows replace a complete gather, at stages 1 and 2 they are sent besides.
TEST(LookupRows, SendTheBytesOfTheirRows) {
  if (!several()) return;
  int const ranks = test::session().info().world_size, rank = test::session().info().rank;
  for (int const stage : {1, 2, 3})
    for (bool const is_tied : {true, false})
      for (auto const dtype : {Dtype::fp32, Dtype::bf16}) {
        Case const c{.stage = stage, .dtype = dtype, .is_tied = is_tied};
        SCOPED_TRACE(testing::PrintToString(c));
        auto const apart = train(c, Lookups::announced), whole = train(c, Lookups::unannounced);
        auto const elements = [&](Result const& of, char const* operation, Dtype type) {
          return static_cast<std::int64_t>(bytes_of(of, operation, type) / size_of(type));
        };
        std::int64_t const shard =
            round_up(round_up(vocabulary * width, 32) + round_up(positions * width, 32),
                     32 * ranks) /
            ranks;
        auto const sent = sent_for_rows(2, ranks, rank, shard);
        EXPECT_EQ(elements(apart, "all_gather", dtype) - elements(whole, "all_gather", dtype),
                  (ranks - 1) * (sent.block - (stage == 3 ? shard : 0)));
        // gaps between the rows and the positions may travel, too
        auto const moved =
            elements(apart, "all_to_all", dtype) - elements(whole, "all_to_all", dtype);
        EXPECT_GE(moved, sent.to_blocks);
        EXPECT_LE(moved, sent.to_blocks + 32);
      }
}

std::vector<std::int64_t> gathers(Result const& of) {
  std::vector<std::int64_t> out;
  for (auto const& record : of.operations)
    if (record.operation == "all_gather") out.push_back(record.numel);
  return out;
}

/// Stages 1 and 2: rows, all other units, and the complete embedding last, in the next pass.
TEST(LookupRows, ComeBeforeAllElse) {
  if (!several()) return;
  for (int const stage : {1, 2}) {
    auto const apart = gathers(train({.stage = stage}, Lookups::announced));
    auto const largest = *std::max_element(apart.begin(), apart.end());
    EXPECT_EQ(std::count(apart.begin(), apart.end(), largest), 1);
    // the second step begins with the complete gather of the first one's weights
    EXPECT_EQ(apart[0], largest);
    EXPECT_LT(apart[1], largest / 2);
  }
}

/// Gathers after the all-reduce of the gradient norm, the only one of doubles.
std::vector<std::int64_t> gathers_after_norm(Result const& of) {
  std::vector<std::int64_t> out;
  for (auto const& record : of.operations)
    if (record.operation == "all_reduce" && record.dtype == Dtype::fp64)
      out.clear();
    else if (record.operation == "all_gather")
      out.push_back(record.numel);
  return out;
}

/// Stage 3: the rows and the first blocks of the next step, as many as the prefetch bucket holds,
/// while units are updated; the complete embedding once in a step, for the head. Nothing of a step
/// that is not announced.
TEST(LookupRows, AreGatheredAheadAtStage3) {
  if (!several()) return;
  auto const apart = train({.stage = 3}, Lookups::announced),
             whole = train({.stage = 3}, Lookups::unannounced);
  auto const all = gathers(apart), ahead = gathers_after_norm(apart);
  auto const largest = *std::max_element(all.begin(), all.end());
  EXPECT_EQ(std::count(all.begin(), all.end(), largest), 1);
  ASSERT_EQ(ahead.size(), 3u);
  EXPECT_LT(ahead[1], largest / 2) << "rows";
  EXPECT_EQ(ahead[0], ahead[2]) << "blocks, before and after the embedding is updated";
  EXPECT_EQ(all.front(), ahead[0]) << "the pass begins with another one";
  EXPECT_TRUE(gathers_after_norm(whole).empty());
}

/// A unit of most of the prefetch bucket is gathered when those before it fit, not only when it
/// does besides. It takes the buffer that the lookup had.
TEST(LookupRows, LetTheHeadsWeightsComeEarly) {
  if (!several()) return;
  constexpr std::int64_t bucket = 20'000;
  zero::Run run(config_of({.stage = 3, .prefetch = bucket}), true, Lookups::announced);
  auto const& plan = run.engine->plan();
  auto const embedding = plan.unit(first_unit).padded_numel;
  ASSERT_LT(embedding, bucket);
  ASSERT_GT(embedding + plan.unit(UnitIndex(1)).padded_numel, bucket);
  std::int64_t complete = 0;
  run.params.before_acquire = [&](UnitIndex unit) {
    if (unit == UnitIndex(2) && complete == 0)
      for (auto const& record : run.comm->records())
        complete += record.operation == "all_gather" && record.numel == embedding;
  };
  Result out;
  run.comm->clear();
  run.step(0, 1, out);
  EXPECT_EQ(complete, 1) << "two blocks before the head";
}

/// A unit that stays gathered from its lookup to the head is gathered once as before.
TEST(LookupRows, AreNotTakenWhereTheUnitStaysGathered) {
  if (!several()) return;
  Case const c{.stage = 3, .prefetch = 50'000'000};
  auto const apart = train(c, Lookups::announced), whole = train(c, Lookups::unannounced);
  EXPECT_EQ(apart.rows, std::nullopt);
  auto const counted = [](Result const& of) {
    std::map<std::string, std::int64_t> counts;
    for (auto const& record : of.operations)
      ++counts[concat(record.operation, " ", record.numel, " ", record.bytes_sent)];
    return counts;
  };
  EXPECT_EQ(counted(apart), counted(whole)) << "some of it ahead, at the end of the step before";
}

/// The first step allocates the buffers, and the memory report has them.
TEST(LookupRows, CountTheirBuffers) {
  if (!several()) return;
  for (int const stage : {1, 3}) {
    auto const apart = train({.stage = stage}, Lookups::announced),
               whole = train({.stage = stage}, Lookups::unannounced);
    EXPECT_GT(apart.memory.buffers, whole.memory.buffers);
    EXPECT_EQ(apart.memory.weights, whole.memory.weights);
  }
}

}  // namespace
}  // namespace tessera::zero
