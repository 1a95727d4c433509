/// Flipped bits in weights, gradients and activations of one rank are found and named; steps
/// without one raise no alarm.
#include "tessera/train/step/verification.hpp"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <algorithm>
#include <bit>
#include <cstring>
#include <map>
#include <utility>
#include <vector>

#include "mpi_test.hpp"
#include "small_run.hpp"
#include "tessera/train/step/training_step.hpp"

namespace tessera::train {
namespace {

using memory::UnitIndex;
using ::testing::ElementsAre;
using ::testing::HasSubstr;
using ::testing::IsEmpty;
using What = Finding::What;
using Hashes = std::vector<std::uint64_t>;

TEST(Shifts, EveryRankVerifiesEveryOtherOneAndAThirdDecides) {
  for (int const ranks : {3, 4, 7}) {
    std::vector<bool> seen(static_cast<std::size_t>(ranks));
    for (int i = 0; i < ranks - 1; ++i) {
      auto const shifts = shifts_of(i, ranks);
      EXPECT_NE(shifts.first, shifts.second);
      for (int const shift : {shifts.first, shifts.second})
        EXPECT_TRUE(shift > 0 && shift < ranks) << shift << " of " << ranks;
      seen[static_cast<std::size_t>(shifts.first)] = true;
    }
    EXPECT_EQ(std::ranges::count(seen, true), ranks - 1);
  }
  EXPECT_EQ(shifts_of(5, 2).first, 1);
  EXPECT_EQ(shifts_of(5, 2).second, 0) << "a second computation of its own";
}

/// The hashes of ranks of which @p wrong computes other values. @p always: also when it verifies
std::vector<RankHashes> hashes(int ranks, Shifts shifts, int wrong, bool always) {
  std::vector<RankHashes> out(static_cast<std::size_t>(ranks));
  auto const of = [](int rank) { return Hashes{10, 20u + static_cast<std::uint64_t>(rank), 30}; };
  for (int r = 0; r < ranks; ++r) {
    auto& mine = out[static_cast<std::size_t>(r)];
    mine.weights = {1, 2};
    mine.own = of(r);
    mine.first = of((r + shifts.first) % ranks);
    mine.second = of((r + shifts.second) % ranks);
    if (r != wrong) continue;
    mine.own[1] ^= 1;
    if (!always) continue;
    mine.first[1] ^= 1;
    mine.second[1] ^= 1;
  }
  return out;
}

TEST(Findings, NameTheRankThatTwoOthersContradict) {
  for (int const ranks : {3, 4, 5})
    for (int i = 0; i < ranks - 1; ++i)
      for (int wrong = 0; wrong < ranks; ++wrong)
        for (bool const always : {false, true}) {
          auto const shifts = shifts_of(i, ranks);
          EXPECT_THAT(findings(hashes(ranks, shifts, wrong, always), shifts),
                      ElementsAre(Finding{What::results, wrong, 1}));
        }
  EXPECT_THAT(findings(hashes(4, shifts_of(0, 4), -1, false), shifts_of(0, 4)), IsEmpty());
}

TEST(Findings, OfTwoRanksNameOneThatWasWrongOnce) {
  auto const shifts = shifts_of(0, 2);
  for (int wrong = 0; wrong < 2; ++wrong) {
    EXPECT_THAT(findings(hashes(2, shifts, wrong, false), shifts),
                ElementsAre(Finding{What::results, wrong, 1}));
    EXPECT_THAT(findings(hashes(2, shifts, wrong, true), shifts),
                ElementsAre(Finding{What::results, -1, 1}))
        << "which of them is always wrong is not known";
  }
}

TEST(Findings, NameWeightsFirst) {
  auto const shifts = shifts_of(0, 3);
  auto ranks = hashes(3, shifts, 1, true);
  ranks[1].weights[1] ^= 8;
  EXPECT_THAT(findings(ranks, shifts), ElementsAre(Finding{What::weights, 1, 1}));
}

TEST(DifferingCopies, AreComparedWithTheirOwn) {
  EXPECT_THAT(differing_copies({{1}, {2}, {1}, {2}, {1}, {3}}, 2, What::states),
              ElementsAre(Finding{What::states, 5, 0}));
  EXPECT_THAT(differing_copies({{1, 7}, {1, 8}}, 1, What::weights),
              ElementsAre(Finding{What::weights, -1, 1}));
  EXPECT_THAT(differing_copies({{1}, {2}}, 2, What::states), IsEmpty());
}

/// Which bit of which pass of this rank is flipped.
struct Flip {
  enum class Where { nowhere, weights, product, gradients } where = Where::nowhere;
  UnitIndex unit{1};
  bool done = false;
};

void flip_bit(void const* data) {
  unsigned char byte = 0;
  std::memcpy(&byte, data, 1);
  byte ^= 2;
  std::memcpy(const_cast<void*>(data), &byte, 1);
}

/// Flips a bit once: in the memory of weights, in the copy of them that one product reads, or in
/// gradients.
class FlippingParams final : public memory::ParamProvider {
 public:
  FlippingParams(memory::ParamProvider& params, Flip& flip) : params_(params), flip_(flip) {}
  void begin_pass(memory::Pass pass, std::vector<UnitIndex> acquisitions) override {
    params_.begin_pass(pass, std::move(acquisitions));
  }
  memory::WeightLease acquire(UnitIndex unit, memory::Queue& compute) override {
    auto lease = params_.acquire(unit, compute);
    if (take(Flip::Where::weights, unit)) flip_bit(lease[2].data());
    if (!take(Flip::Where::product, unit)) return lease;
    std::vector<memory::ConstTensorView> views;
    for (std::size_t i = 0; i < lease.size(); ++i) views.push_back(lease[i]);
    auto const& weight = views[2];
    static std::vector<float> wrong;
    wrong.assign(weight.as<float>(), weight.as<float>() + weight.numel());
    wrong[5] += 1.0f;
    ConstView const copy{wrong.data(), Dtype::fp32, {weight.dim(0), weight.dim(1)}};
    views[2] = copy;
    auto const kept = std::make_shared<memory::WeightLease>(std::move(lease));
    return {views, [kept] {}};
  }
  memory::GradientLease gradient(UnitIndex unit, memory::Queue& compute) override {
    auto lease = params_.gradient(unit, compute);
    last_[unit] = lease[2].data();
    return lease;
  }
  void gradient_complete(UnitIndex unit, memory::Queue& compute) override {
    if (take(Flip::Where::gradients, unit)) flip_bit(last_[unit]);
    params_.gradient_complete(unit, compute);
  }

 private:
  using ConstView = memory::ConstTensorView;
  bool take(Flip::Where where, UnitIndex unit) {
    if (flip_.done || flip_.where != where || flip_.unit != unit) return false;
    return flip_.done = true;
  }
  memory::ParamProvider& params_;
  Flip& flip_;
  std::map<UnitIndex, void*> last_;
};

/// A model whose training passes meet the flip.
class FlippingModel final : public model::CausalLm {
 public:
  explicit FlippingModel(model::CausalLm& model) : model_(model) {}
  std::vector<memory::UnitSpec> const& units() const override { return model_.units(); }
  std::string_view family() const override { return model_.family(); }
  ConfigTree const& config() const override { return model_.config(); }
  std::int64_t vocabulary_size() const override { return model_.vocabulary_size(); }
  std::int64_t max_positions() const override { return model_.max_positions(); }
  model::LossSum train(model::Batch const& batch, model::PassSettings const& settings,
                       memory::ParamProvider& params, memory::Queue& compute) override {
    FlippingParams flipping(params, flip);
    return model_.train(batch, settings, flipping, compute);
  }
  model::LossSum evaluate(model::Batch const& batch, memory::WeightProvider& params,
                          memory::Queue& compute) override {
    return model_.evaluate(batch, params, compute);
  }
  std::unique_ptr<model::KeyValueCache> make_cache(std::int64_t rows, std::int64_t positions,
                                                   memory::Queue& compute) const override {
    return model_.make_cache(rows, positions, compute);
  }
  std::vector<float> decode(model::DecodeBatch const& batch, model::KeyValueCache& cache,
                            memory::WeightProvider& params, memory::Queue& compute) override {
    return model_.decode(batch, cache, params, compute);
  }
  void decode_nothing(memory::WeightProvider& params, memory::Queue& compute) override {
    model_.decode_nothing(params, compute);
  }
  std::size_t activation_bytes(model::PlannedPass const& pass, memory::MemorySpace space) override {
    return model_.activation_bytes(pass, space);
  }
  void reserve_activations(std::size_t bytes, memory::Queue& compute) override {
    model_.reserve_activations(bytes, compute);
  }

  Flip flip;

 private:
  model::CausalLm& model_;
};

struct Mode {
  int stage = 0;
  int micro_steps = 1;
  zero::SumOrder order = zero::SumOrder::ranks;
  int shard_group = 0;
  bool hash_states = true;
};

zero::EngineConfig engine_config(Mode const& mode) {
  zero::EngineConfig out;
  zero::ShardedWeights states;
  states.shard_group_size = mode.shard_group;
  out.partition = zero::partition_of(mode.stage, states);
  out.accumulation_steps = mode.micro_steps;
  out.sum_order = mode.order;
  out.max_grad_norm = 1.0;
  out.hash_states = mode.hash_states;
  return out;
}

/// Steps of all ranks, verified every @p interval steps.
struct VerifiedRun {
  VerifiedRun(Mode const& mode, std::int64_t interval, bool warns_only)
      : run(engine_config(mode), comm::make_mpi(test::session(), std::chrono::seconds(60))),
        mesh(*run.comm, topology::data_parallel_mesh(run.comm->size(), mode.shard_group)),
        model(*run.model),
        context{model, *run.engine, *run.compute, mesh},
        plan({.samples = 48,
              .ranks = run.comm->size(),
              .micro_batch = 2,
              .accumulation_steps = mode.micro_steps,
              .epochs = 20}),
        verifier(
            context, *run.engine,
            {.interval = interval,
             .warns_only = warns_only,
             .report =
                 [this](auto const& all) { found.insert(found.end(), all.begin(), all.end()); }}),
        step(context, *run.engine, test::small_sequences(run.files, 16),
             {.micro_batch_size = 2, .verifier = interval > 0 ? &verifier : nullptr}) {}

  StepOutcome next() { return step.run(++number, plan, 1e-3); }
  int ranks() const { return run.comm->size(); }
  int victim() const { return ranks() - 1; }
  void arm(Flip::Where where, UnitIndex unit) {
    if (run.comm->rank() == victim()) model.flip = {.where = where, .unit = unit};
  }

  test::SmallRun run;
  comm::Mesh mesh;
  FlippingModel model;
  ModelContext context;
  data::Sampler plan;
  std::vector<Corruption> found;
  Verifier verifier;
  TrainingStep step;
  std::int64_t number = 0;
};

std::vector<Mode> modes() {
  std::vector<Mode> out;
  for (int stage = 0; stage < 4; ++stage) {
    out.push_back({.stage = stage});
    out.push_back({.stage = stage, .micro_steps = 3});
    if (std::has_single_bit(static_cast<unsigned>(test::session().info().world_size)))
      out.push_back({.stage = stage, .micro_steps = 2, .order = zero::SumOrder::tree});
  }
  return out;
}

class Verified : public ::testing::Test {
 protected:
  void SetUp() override {
    if (test::session().info().world_size == 1) GTEST_SKIP() << "one rank has no others";
  }
  static bool two_ranks() { return test::session().info().world_size == 2; }
};

/// Losses and gradient norms of the first steps without verification.
std::vector<std::pair<double, double>> plain_steps(Mode const& mode, int steps) {
  VerifiedRun run(mode, 0, false);
  std::vector<std::pair<double, double>> out;
  for (int i = 0; i < steps; ++i) {
    auto const outcome = run.next();
    out.emplace_back(outcome.loss, outcome.update.grad_norm);
  }
  return out;
}

TEST_F(Verified, CleanStepsRaiseNoAlarmAndComputeTheSame) {
  for (auto const& mode : modes()) {
    auto const plain = plain_steps(mode, 6);
    VerifiedRun verified(mode, 1, false);
    for (auto const& [loss, norm] : plain) {
      auto const outcome = verified.next();
      EXPECT_EQ(outcome.loss, loss) << "stage " << mode.stage << ", step " << verified.number;
      EXPECT_EQ(outcome.update.grad_norm, norm);
    }
    verified.verifier.compare_copies(6, verified.run.engine->state());
    EXPECT_THAT(verified.found, IsEmpty());
  }
}

TEST_F(Verified, AFlippedGradientIsNamedAndTheStepRepeated) {
  for (auto const& mode : modes()) {
    auto const plain = plain_steps(mode, 5);
    VerifiedRun flipped(mode, 2, true);
    for (auto const& [loss, norm] : plain) {
      if (flipped.number == 3) flipped.arm(Flip::Where::gradients, UnitIndex(2));
      auto const outcome = flipped.next();
      EXPECT_EQ(outcome.loss, loss) << "stage " << mode.stage << ", step " << flipped.number;
      EXPECT_EQ(outcome.update.grad_norm, norm) << "the flipped gradients do not count";
    }
    ASSERT_EQ(flipped.found.size(), 1u) << "stage " << mode.stage;
    auto const& found = flipped.found[0];
    EXPECT_EQ(found.step, 4);
    EXPECT_EQ(found.finding.what, What::results);
    EXPECT_EQ(found.finding.rank, flipped.victim());
    EXPECT_EQ(found.unit, "block.1");
    EXPECT_EQ(found.device, "CPU");
  }
}

TEST_F(Verified, AWrongProductIsNamed) {
  for (int stage = 0; stage < 4; ++stage) {
    VerifiedRun run({.stage = stage}, 1, true);
    (void)run.next();
    run.arm(Flip::Where::product, UnitIndex(1));
    (void)run.next();
    ASSERT_EQ(run.found.size(), 1u) << "stage " << stage;
    EXPECT_EQ(run.found[0].finding.what, What::results);
    EXPECT_EQ(run.found[0].finding.rank, run.victim());
    EXPECT_THAT(run.found[0].text(), HasSubstr("silent corruption at step 2"));
  }
}

/// Working weights of stages 0 to 2 are in the memory of each rank. At stage 0 a flipped one stays;
/// an update of stages 1 and 2 replaces it, so that only a step that is verified can find it.
TEST_F(Verified, AFlippedWeightEndsTheRunWithinTheInterval) {
  for (int stage = 0; stage < 3; ++stage) {
    std::int64_t const interval = stage == 0 ? 3 : 1;
    // fp32 weights are the master weights, which the update before the verification has compared
    auto const what = stage == 0 ? What::changed_states : What::weights;
    VerifiedRun run({.stage = stage}, interval, false);
    (void)run.next();
    run.arm(Flip::Where::weights, UnitIndex(1));
    int const expected = two_ranks() && what == What::weights ? -1 : run.victim();
    for (; run.number + 1 < std::max<std::int64_t>(interval, 2);) (void)run.next();
    try {
      (void)run.next();
      ADD_FAILURE() << "stage " << stage;
    } catch (CorruptionError const& e) {
      EXPECT_EQ(e.code(), ExitCode::peer_lost);
      EXPECT_EQ(e.rank, expected);
      EXPECT_THAT(e.what(), HasSubstr("block.0"));
    }
    ASSERT_EQ(run.found.size(), 1u);
    EXPECT_EQ(run.found[0].finding.what, what);
    EXPECT_EQ(run.found[0].finding.rank, expected);
  }
}

TEST_F(Verified, AWrongOptimizerStateOfAReplicaIsAlsoFoundInItsWeights) {
  VerifiedRun run({.stage = 0}, 1, true);
  (void)run.next();
  auto const states = run.run.engine->state();
  ASSERT_FALSE(run.run.engine->state_is_snapshot());
  if (run.run.comm->rank() == run.victim()) states[1].unit_shards[1][0] += 1.0f;
  (void)run.next();
  EXPECT_EQ(run.found.size(), 1u) << "the weights follow in the update";
  (void)run.next();
  ASSERT_EQ(run.found.size(), 3u) << "the step that is computed again has the same weights";
  for (std::size_t i = 0; i < 3; ++i) {
    auto const& found = run.found[i];
    EXPECT_EQ(found.finding.what, i == 0 ? What::changed_states : What::weights);
    EXPECT_EQ(found.finding.rank, two_ranks() && i > 0 ? -1 : run.victim());
    EXPECT_EQ(found.unit, "block.0");
  }
}

/// No other rank has a copy of the states of stages 1 to 3.
TEST_F(Verified, StatesThatChangeBetweenUpdatesAreNamed) {
  for (int stage = 1; stage < 4; ++stage)
    for (std::size_t state = 0; state < 3; ++state) {
      VerifiedRun run({.stage = stage}, 3, true);
      (void)run.next();
      auto const states = run.run.engine->state();
      ASSERT_FALSE(run.run.engine->state_is_snapshot());
      if (run.run.comm->rank() == run.victim()) flip_bit(states[state].unit_shards[1]);
      while (run.number < 6) (void)run.next();
      ASSERT_EQ(run.found.size(), 1u) << "stage " << stage << ", state " << state;
      auto const& found = run.found[0];
      EXPECT_EQ(found.step, 3) << "the first verified step after the change";
      EXPECT_EQ(found.finding.what, What::changed_states);
      EXPECT_EQ(found.finding.rank, run.victim());
      EXPECT_THAT(found.text(), HasSubstr("states of unit block.0 of rank"));
      EXPECT_THAT(found.text(), HasSubstr("are not those that an update before has left there"));
    }
}

TEST_F(Verified, StatesThatHaveChangedAreNotSaved) {
  VerifiedRun run({.stage = 2}, 100, false);
  (void)run.next();
  auto const states = run.run.engine->state();
  if (run.run.comm->rank() == run.victim()) flip_bit(states[2].unit_shards[2]);
  try {
    run.verifier.compare_copies(run.number, run.run.engine->state());
    ADD_FAILURE() << "the states of the last rank have changed";
  } catch (CorruptionError const& e) {
    EXPECT_EQ(e.rank, run.victim());
    EXPECT_THAT(e.what(), HasSubstr("block.1"));
  }
}

TEST_F(Verified, StatesOfCopiesAreComparedBeforeASave) {
  if (test::session().info().world_size != 4) GTEST_SKIP() << "two copies on four ranks are wanted";
  for (int stage = 1; stage < 4; ++stage) {
    VerifiedRun run({.stage = stage, .shard_group = 2, .hash_states = false}, 1, true);
    (void)run.next();
    auto const states = run.run.engine->state();
    run.verifier.compare_copies(1, states);
    EXPECT_THAT(run.found, IsEmpty());
    if (run.run.comm->rank() == run.victim()) flip_bit(states[1].unit_shards[1]);
    run.verifier.compare_copies(1, states);
    ASSERT_EQ(run.found.size(), 1u);
    EXPECT_EQ(run.found[0].finding.what, What::states);
    EXPECT_EQ(run.found[0].unit, "block.0");
    EXPECT_EQ(run.found[0].finding.rank, -1) << "two copies have no majority";
  }
}

}  // namespace
}  // namespace tessera::train
