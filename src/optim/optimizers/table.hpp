#pragma once
/// One row per optimizer; make_spec() and make_optimizer() read the table.

#include <memory>

#include "tessera/optim/optimizer.hpp"

namespace tessera::optim::detail {

struct OptimizerEntry {
  OptimizerInfo info;
  /// Checks combinations of values, and names the states that they need.
  std::vector<StateSpec> (*states)(OptimizerSpec const& spec);
  std::unique_ptr<Optimizer> (*make)(OptimizerSpec const& spec);
};

/// OptimizerEntry::make of a class that is made from its spec.
template <class T>
std::unique_ptr<Optimizer> make_as(OptimizerSpec const& spec) {
  return std::make_unique<T>(spec);
}

OptimizerEntry adafactor_entry();
OptimizerEntry adagrad_entry();
OptimizerEntry adam_entry();
OptimizerEntry adamax_entry();
OptimizerEntry adamw_8bit_entry();
OptimizerEntry adamw_entry();
OptimizerEntry lamb_entry();
OptimizerEntry lion_8bit_entry();
OptimizerEntry lion_entry();
OptimizerEntry muon_entry();
OptimizerEntry nadam_entry();
OptimizerEntry one_bit_adam_entry();
OptimizerEntry one_bit_lamb_entry();
OptimizerEntry radam_entry();
OptimizerEntry rmsprop_8bit_entry();
OptimizerEntry rmsprop_entry();
OptimizerEntry sgd_entry();

}  // namespace tessera::optim::detail
