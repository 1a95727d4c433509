#pragma once
/// Optimizers whose update needs complete matrices.

#include <cstdint>
#include <vector>

#include "tessera/core/error.hpp"
#include "tessera/optim/optimizer.hpp"

namespace tessera::optim {

/// Where the directions of a segment's elements are, at its first element: parallel to
/// Segments::list, fp32, in memory of the update's queue.
using Directions = std::vector<float*>;

/// An update in phases, unit by unit. The engine calls advance() with the segments that this rank
/// updates, gathers the directions of the unit from all ranks, calls complete() for every matrix
/// that this rank updates a part of, and then update_with().
class MatrixOptimizer : public Optimizer {
 public:
  /// Whether the parameter of a run is updated as a matrix.
  virtual bool takes_matrix(ParameterRun const& run) const = 0;
  /// Elements of fp32 that complete() needs for a matrix of @p shape.
  virtual std::int64_t workspace(std::vector<std::int64_t> const& shape) const = 0;
  /// Enqueues the update of the states of all matrices in @p segments and writes the directions of
  /// their elements. On a skipped step it changes no state.
  virtual void advance(memory::Queue& queue, Segments const& segments, StepControl const& control,
                       Directions const& directions) const = 0;
  /// Enqueues the change of a complete matrix of directions to that of the update.
  virtual void complete(memory::Queue& queue, float* matrix, std::vector<std::int64_t> const& shape,
                        float* workspace) const = 0;
  /// Enqueues the update, as Optimizer::update().
  virtual void update_with(memory::Queue& queue, Segments const& segments,
                           StepControl const& control, Directions const& directions) const = 0;

  /// @throws InternalError: an update needs the directions
  void update(memory::Queue&, Segments const&, StepControl const&) const final {
    throw InternalError(concat("optimizer ", spec().algorithm,
                               " is updated without the matrices that it needs; call advance() "
                               "first"));
  }
};

}  // namespace tessera::optim
