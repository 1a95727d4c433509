#pragma once
/// Optimizers whose update needs sums over complete parameters, such as norms.

#include <cstdint>
#include <vector>

#include "tessera/core/error.hpp"
#include "tessera/optim/optimizer.hpp"

namespace tessera::optim {

/// Where the sums of a parameter are: of[round][i][j] belongs to Segments::list[i].parameters[j].
/// In memory of the update's queue.
struct ParameterSums {
  std::vector<std::vector<std::vector<double*>>> of;
};

/// A complete parameter: what every rank holds of it.
struct CompleteParameter {
  std::vector<std::int64_t> shape;
  std::vector<void*> states;  ///< as Segment::parameter_states
  std::vector<double*> sums;  ///< sums of each round
};

/// An update in phases. In each round the engine calls sum() with the segments of this rank's
/// shards, adds the sums over the ranks, and calls update_states(). After the last round it calls
/// update_with(). A parameter may be spread over any number of ranks.
class SummingOptimizer : public Optimizer {
 public:
  virtual int rounds() const { return 1; }
  /// Values that a parameter of @p shape needs in @p round.
  virtual std::int64_t sum_count(int round, std::vector<std::int64_t> const& shape) const = 0;
  /// Enqueues writing what the elements of @p segments contribute to the sums of @p round, which
  /// are zero before. It changes neither weights nor states.
  virtual void sum(memory::Queue& queue, int round, Segments const& segments,
                   StepControl const& control, ParameterSums const& sums) const = 0;
  /// Enqueues the update of the states that are not element-wise, after the sums of @p round have
  /// been added. Every rank does it for all parameters; on a skipped step it changes no state.
  virtual void update_states(memory::Queue& queue, int round,
                             std::vector<CompleteParameter> const& parameters,
                             StepControl const& control) const {
    (void)queue, (void)round, (void)parameters, (void)control;
  }
  /// Enqueues the update, as Optimizer::update().
  virtual void update_with(memory::Queue& queue, Segments const& segments,
                           StepControl const& control, ParameterSums const& sums) const = 0;

  /// @throws InternalError: an update needs the sums
  void update(memory::Queue&, Segments const&, StepControl const&) const final {
    throw InternalError(concat("optimizer ", spec().algorithm,
                               " is updated without the sums that it needs; call sum() first"));
  }
};

}  // namespace tessera::optim
