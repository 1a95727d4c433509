#pragma once
/// Optimizers whose update needs sums over complete parameters, such as norms.

#include <vector>

#include "tessera/core/error.hpp"
#include "tessera/optim/optimizer.hpp"

namespace tessera::optim {

/// Where the sums of a parameter are: of[i][j] belongs to Segments::list[i].parameters[j]. In
/// memory of the update's queue.
struct ParameterSums {
  std::vector<std::vector<double*>> of;
};

/// An update in two phases. The engine calls sum() with the segments of this rank's shards, adds
/// the sums over the ranks, and calls update_with() with the same sums. A parameter may be spread
/// over any number of ranks.
class SummingOptimizer : public Optimizer {
 public:
  /// Values that a parameter needs.
  virtual int sums_per_parameter() const = 0;
  /// Enqueues writing what the elements of @p segments contribute to @p sums. It changes neither
  /// weights nor states.
  virtual void sum(memory::Queue& queue, Segments const& segments, StepControl const& control,
                   ParameterSums const& sums) const = 0;
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
