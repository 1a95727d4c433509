#pragma once
/// The update of complete matrices: directions are gathered from the ranks that share a matrix.

#include <cstdint>
#include <vector>

#include "tessera/memory/buffer.hpp"
#include "tessera/optim/matrix_optimizer.hpp"
#include "transfer/comm_buffer.hpp"
#include "transfer/weight_store.hpp"

namespace tessera::zero::detail {

class MatrixUpdate {
 public:
  /// @param space of the queue that updates
  MatrixUpdate(StoreContext const& context, optim::MatrixOptimizer const& optimizer,
               memory::MemorySpace space);

  /// The region of a unit that this rank updates.
  struct Region {
    UnitIndex unit;
    optim::Segments const& segments;
    float const* master;  ///< address of its first element
  };
  /// Enqueues the update. Collective where ranks share the matrices.
  /// @param optimizer of the same algorithm as the constructor's
  void update(memory::Queue& queue, optim::MatrixOptimizer const& optimizer, Region const& region,
              optim::StepControl const& control) const;

 private:
  void gather_directions(memory::Queue& queue, UnitIndex unit) const;

  StoreContext context_;
  CommBuffer directions_;  ///< directions of a complete unit
  memory::Buffer workspace_;
  /// A matrix that this rank updates a part of.
  struct Matrix {
    std::int64_t offset = 0;  ///< in directions_
    std::vector<std::int64_t> shape;
  };
  std::vector<std::vector<Matrix>> matrices_;  ///< per unit
};

}  // namespace tessera::zero::detail
