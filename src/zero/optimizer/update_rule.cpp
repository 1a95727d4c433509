#include "optimizer/update_rule.hpp"

#include "optimizer/matrix_update.hpp"
#include "tessera/core/error.hpp"
#include "tessera/optim/matrix_optimizer.hpp"
#include "tessera/optim/summing_optimizer.hpp"

namespace tessera::zero::detail {
namespace {

/// A rule of optimizers that implement the interface `T`.
template <class T>
class RuleOf : public UpdateRule {
 public:
  explicit RuleOf(T const& optimizer) : optimizer_(&optimizer) {}
  void set_optimizer(optim::Optimizer const& optimizer) final {
    auto const* const same = dynamic_cast<T const*>(&optimizer);
    TESSERA_VALIDATE(same, InternalError, "optimizer ", optimizer.spec().algorithm,
                     " has another kind of update than ", spec().algorithm,
                     ", which it is to replace");
    optimizer_ = same;
  }
  optim::OptimizerSpec const& spec() const final { return optimizer_->spec(); }

 protected:
  T const& optimizer() const { return *optimizer_; }

 private:
  T const* optimizer_;
};

class ElementwiseRule final : public RuleOf<optim::Optimizer> {
 public:
  using RuleOf::RuleOf;
  void update(memory::Queue& queue, UpdateRange const& range,
              optim::StepControl const& control) const override {
    optimizer().update(queue, range.segments, control);
  }
};

/// Each rank sums its own shards, also where it updates all elements: the same bits in every stage.
class SummingRule final : public RuleOf<optim::SummingOptimizer> {
 public:
  SummingRule(SegmentSources const& sources, optim::SummingOptimizer const& optimizer)
      : RuleOf(optimizer), sums_(sources.context, optimizer, sources.states.placement().space) {
    auto const& plan = sources.context.plan;
    for (UnitIndex u = first_unit; u < plan.end_unit(); ++u) {
      UnitOffset const begin = sources.context.ownership.shard_begin(u);
      shards_.push_back({segments_of_shard(sources, optimizer.spec(), u),
                         sums_.of_runs(u, begin, begin + plan.unit(u).shard_numel),
                         complete_parameters(sources, u)});
    }
    for (auto const& step : sources.schedule.steps()) {
      auto const& range = step.range;
      UnitOffset const begin = sources.context.ownership.begin(range.unit) + range.begin;
      of_steps_.push_back(sums_.of_runs(range.unit, begin, begin + range.numel));
    }
  }

  int rounds() const override { return optimizer().rounds(); }
  void clear_sums(memory::Queue& queue) const override { sums_.clear(queue); }
  void sum(memory::Queue& queue, int round, UnitIndex unit,
           optim::StepControl const& control) const override {
    auto const& shard = shards_[position(unit)];
    optimizer().sum(queue, round, shard.segments, control, shard.sums);
  }
  void complete_sums(memory::Queue& queue, int round,
                     optim::StepControl const& control) const override {
    sums_.add_over_ranks(queue, round);
    for (auto const& shard : shards_)
      optimizer().update_states(queue, round, shard.parameters, control);
  }
  void update(memory::Queue& queue, UpdateRange const& range,
              optim::StepControl const& control) const override {
    optimizer().update_with(queue, range.segments, control, of_steps_[range.step.index]);
  }

 private:
  /// This rank's shard of a unit, and all parameters of the unit.
  struct Shard {
    optim::Segments segments;
    optim::ParameterSums sums;
    std::vector<optim::CompleteParameter> parameters;
  };
  std::vector<optim::CompleteParameter> complete_parameters(SegmentSources const& sources,
                                                            UnitIndex unit) const {
    std::vector<optim::CompleteParameter> out;
    auto const& parameters = sources.context.plan.unit(unit).parameters;
    for (std::size_t p = 0; p < parameters.size(); ++p)
      out.push_back({parameters[p].shape, parameter_states(sources, unit, p, parameters[p].offset),
                     sums_.of_parameter(unit, p)});
    return out;
  }

  ParameterSumBuffer sums_;
  std::vector<Shard> shards_;                   ///< shards of each unit
  std::vector<optim::ParameterSums> of_steps_;  ///< sums of each step's range
};

class MatrixRule final : public RuleOf<optim::MatrixOptimizer> {
 public:
  MatrixRule(SegmentSources const& sources, optim::MatrixOptimizer const& optimizer)
      : RuleOf(optimizer),
        matrices_(sources.context, optimizer, sources.states.placement().space) {}
  void update(memory::Queue& queue, UpdateRange const& range,
              optim::StepControl const& control) const override {
    matrices_.update(
        queue, optimizer(),
        {range.step.range.unit, range.segments, static_cast<float const*>(range.master)}, control);
  }

 private:
  MatrixUpdate matrices_;
};

}  // namespace

std::unique_ptr<UpdateRule> make_update_rule(SegmentSources const& sources,
                                             optim::Optimizer const& optimizer) {
  if (auto const* const matrix = dynamic_cast<optim::MatrixOptimizer const*>(&optimizer))
    return std::make_unique<MatrixRule>(sources, *matrix);
  if (auto const* const summing = dynamic_cast<optim::SummingOptimizer const*>(&optimizer))
    return std::make_unique<SummingRule>(sources, *summing);
  return std::make_unique<ElementwiseRule>(optimizer);
}

}  // namespace tessera::zero::detail
