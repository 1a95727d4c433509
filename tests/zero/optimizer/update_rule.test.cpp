/// The rules: what an optimizer is called with in each phase.
#include "optimizer/update_rule.hpp"

#include "detail_fixture.hpp"
#include "tessera/optim/matrix_optimizer.hpp"
#include "tessera/optim/summing_optimizer.hpp"

namespace tessera::zero::detail {
namespace {

/// Adds the number of elements to the sum of each parameter, twice.
class Counter final : public optim::SummingOptimizer {
 public:
  optim::OptimizerSpec const& spec() const override { return spec_; }
  int rounds() const override { return 2; }
  std::int64_t sum_count(int, std::vector<std::int64_t> const&) const override { return 1; }
  void sum(memory::Queue&, int round, optim::Segments const& segments, optim::StepControl const&,
           optim::ParameterSums const& sums) const override {
    auto const& of_round = sums.of[static_cast<std::size_t>(round)];
    for (std::size_t i = 0; i < segments.list.size(); ++i)
      for (std::size_t j = 0; j < segments.list[i].parameters.size(); ++j)
        *of_round[i][j] += static_cast<double>(segments.list[i].parameters[j].numel);
  }
  void update_states(memory::Queue&, int round,
                     std::vector<optim::CompleteParameter> const& parameters,
                     optim::StepControl const&) const override {
    for (auto const& parameter : parameters)
      counts.push_back(*parameter.sums[static_cast<std::size_t>(round)]);
  }
  void update_with(memory::Queue&, optim::Segments const& segments, optim::StepControl const&,
                   optim::ParameterSums const& sums) const override {
    updated = static_cast<int>(segments.list.size());
    last = *sums.of[1][0][0];
  }
  optim::OptimizerSpec spec_ = optim::make_spec("Lamb");
  mutable std::vector<double> counts;
  mutable int updated = 0;
  mutable double last = 0.0;
};

class Recorder final : public optim::Optimizer {
 public:
  optim::OptimizerSpec const& spec() const override { return spec_; }
  void update(memory::Queue&, optim::Segments const& segments,
              optim::StepControl const& control) const override {
    numel = segments.list[0].numel;
    step = control.step;
  }
  optim::OptimizerSpec spec_ = optim::make_spec("AdamW");
  mutable std::int64_t numel = 0, step = 0;
};

class Matrices final : public optim::MatrixOptimizer {
 public:
  optim::OptimizerSpec const& spec() const override { return spec_; }
  bool takes_matrix(optim::ParameterRun const& run) const override { return run.shape.size() > 1; }
  std::int64_t workspace(std::vector<std::int64_t> const&) const override { return 1; }
  void advance(memory::Queue&, optim::Segments const&, optim::StepControl const&,
               optim::Directions const& directions) const override {
    first = directions.at(0);
  }
  void complete(memory::Queue&, float* matrix, std::vector<std::int64_t> const&,
                float*) const override {
    completed.push_back(matrix);
  }
  void update_with(memory::Queue&, optim::Segments const&, optim::StepControl const&,
                   optim::Directions const&) const override {}
  optim::OptimizerSpec spec_ = optim::make_spec("Muon");
  mutable float* first = nullptr;
  mutable std::vector<float*> completed;
};

struct Rule : test::Parts {
  explicit Rule(optim::Optimizer const& optimizer)
      : Parts([&] {
          EngineConfig c;
          c.dtype = c.communication_dtype = Dtype::bf16;
          c.optimizer = optimizer.spec();
          return c;
        }()),
        weights(make_resident_weights(context)),
        gradients(make_resident_gradients(context, rules, units)),
        schedule(region_numel(context, plan.end_unit()), {}),
        states(context, state_layouts(context, rules, config.optimizer), *weights, {},
               {memory::MemorySpace::host, compute.get()}),
        sources{context, rules, states, schedule, *weights, *gradients, nullptr},
        rule(make_update_rule(sources, optimizer)) {}
  void update(std::size_t index) const {
    auto const& step = schedule[index];
    auto const segments = segments_of_step(sources, config.optimizer, step);
    auto const& storage = states.storage(step.range.unit);
    rule->update(*compute, {step, segments, storage.values(master_weights, step)}, control);
  }

  optim::StepControl const control{3, 0.1, nullptr};
  std::unique_ptr<WeightStore> weights;
  std::unique_ptr<GradientFlow> gradients;
  UpdateSchedule schedule;
  StateTable states;
  SegmentSources sources;
  std::unique_ptr<UpdateRule> rule;
};

TEST(ElementwiseRule, UpdatesARangeWithoutSums) {
  Recorder const first, second;
  Rule const rule(first);
  EXPECT_EQ(rule.rule->rounds(), 0);
  rule.update(0);
  EXPECT_EQ(first.numel, 40);
  EXPECT_EQ(first.step, 3);
  rule.rule->set_optimizer(second);
  rule.update(1);
  EXPECT_EQ(second.numel, 8);
}

TEST(SummingRule, GivesEachParameterTheSumsOfItsRound) {
  Counter const counter;
  Rule const rule(counter);
  ASSERT_EQ(rule.rule->rounds(), 2);
  rule.rule->clear_sums(*rule.compute);
  for (int round = 0; round < 2; ++round) {
    for (UnitIndex u = first_unit; u < rule.plan.end_unit(); ++u)
      rule.rule->sum(*rule.compute, round, u, rule.control);
    rule.rule->complete_sums(*rule.compute, round, rule.control);
  }
  EXPECT_EQ(counter.counts, (std::vector<double>{40, 8, 24, 8, 40, 8, 24, 8}));
  rule.update(0);
  EXPECT_EQ(counter.updated, 3);
  EXPECT_EQ(counter.last, 40.0);
}

TEST(MatrixRule, CompletesMatricesFromTheirFirstDirection) {
  Matrices const matrices;
  Rule const rule(matrices);
  EXPECT_EQ(rule.rule->rounds(), 0);
  rule.update(0);
  ASSERT_EQ(matrices.completed.size(), 2u);
  EXPECT_EQ(matrices.completed[0], matrices.first);
}

TEST(UpdateRule, RefusesAnOptimizerWithAnotherKindOfUpdate) {
  Counter const counter;
  Recorder const recorder;
  Rule const rule(counter);
  EXPECT_THROW(rule.rule->set_optimizer(recorder), InternalError);
}

}  // namespace
}  // namespace tessera::zero::detail
