#pragma once
/// How the values of a range are updated: element by element, with sums over complete parameters,
/// or with complete matrices.

#include <memory>

#include "optimizer/parameter_sums.hpp"
#include "optimizer/update_segments.hpp"
#include "tessera/optim/optimizer.hpp"

namespace tessera::zero::detail {

/// An open range.
struct UpdateRange {
  UpdateStep const& step;
  optim::Segments const& segments;
  void const* master;  ///< its first master weight
};

class UpdateRule {
 public:
  virtual ~UpdateRule() = default;

  /// Uses another optimizer of the same algorithm and states, which outlives this or the next call.
  virtual void set_optimizer(optim::Optimizer const& optimizer) = 0;
  virtual optim::OptimizerSpec const& spec() const = 0;

  /// Rounds of sums over complete parameters that precede the updates of all ranges.
  virtual int rounds() const { return 0; }
  /// Precedes the first round.
  virtual void clear_sums(memory::Queue& queue) const { (void)queue; }
  /// Enqueues the sums of this rank's shard of @p unit, whose ranges are open.
  virtual void sum(memory::Queue& queue, int round, UnitIndex unit,
                   optim::StepControl const& control) const {
    (void)queue, (void)round, (void)unit, (void)control;
  }
  /// Adds the sums of all units over the ranks, and updates the states that depend only on them.
  /// Collective.
  virtual void complete_sums(memory::Queue& queue, int round,
                             optim::StepControl const& control) const {
    (void)queue, (void)round, (void)control;
  }

  /// Enqueues the update. Collective where ranks share matrices.
  virtual void update(memory::Queue& queue, UpdateRange const& range,
                      optim::StepControl const& control) const = 0;
};

/// The rule that the interface of @p optimizer names.
std::unique_ptr<UpdateRule> make_update_rule(SegmentSources const& sources,
                                             optim::Optimizer const& optimizer);

}  // namespace tessera::zero::detail
