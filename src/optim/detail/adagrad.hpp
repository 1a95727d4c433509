#pragma once
/// Adagrad with torch.optim.Adagrad's learning rate decay and L2 weight decay.

#include "detail/optimizer_table.hpp"

namespace tessera::optim::detail {

OptimizerEntry adagrad_entry();

}  // namespace tessera::optim::detail
