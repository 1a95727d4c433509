#pragma once
/// The phases of OneBitAdam and ZeroOneAdam that do not compress communication: Adam without bias
/// correction. Without these phases the optimizers are not implemented.

#include "detail/optimizer_table.hpp"

namespace tessera::optim::detail {

OptimizerEntry one_bit_adam_entry();
OptimizerEntry zero_one_adam_entry();

}  // namespace tessera::optim::detail
