#pragma once
/// The sums over complete parameters that some updates need, of all rounds, in one buffer that
/// takes part in collectives.

#include <cstdint>
#include <vector>

#include "tessera/optim/summing_optimizer.hpp"
#include "transfer/comm_buffer.hpp"
#include "transfer/weight_store.hpp"

namespace tessera::zero::detail {

class ParameterSumBuffer {
 public:
  /// @param space of the queue that updates
  ParameterSumBuffer(StoreContext const& context, optim::SummingOptimizer const& optimizer,
                     memory::MemorySpace space);

  /// The sums of a parameter, of each round.
  std::vector<double*> of_parameter(UnitIndex unit, std::size_t parameter) const;
  /// The sums of the runs of a unit, in the order of the segments of these elements.
  optim::ParameterSums of_runs(UnitIndex unit, UnitOffset begin, UnitOffset end) const;

  void clear(memory::Queue& queue) const;
  /// Collective.
  void add_over_ranks(memory::Queue& queue, int round) const;

 private:
  StoreContext context_;
  optim::OptimizerSpec spec_;
  CommBuffer sums_;                         ///< round by round, each of all parameters
  std::vector<std::int64_t> round_begins_;  ///< begins of each round in sums_, and the end
  std::vector<std::vector<std::vector<std::int64_t>>> offsets_;  ///< [round][unit][parameter]
};

/// A buffer for @p space: in host memory where that differs from the memory of the collectives.
CommBuffer make_comm_buffer(StoreContext const& context, std::string const& name, Dtype dtype,
                            std::int64_t numel, memory::MemorySpace space);

}  // namespace tessera::zero::detail
