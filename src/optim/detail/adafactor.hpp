#pragma once
/// Adafactor in the form of transformers, with the means of complete rows and columns on any number
/// of ranks.

#include "detail/optimizer_table.hpp"

namespace tessera::optim::detail {

OptimizerEntry adafactor_entry();

}  // namespace tessera::optim::detail
