#pragma once
/// Stochastic gradient descent with torch.optim.SGD's momentum, dampening, Nesterov form and L2
/// weight decay.

#include "detail/optimizer_table.hpp"

namespace tessera::optim::detail {

OptimizerEntry sgd_entry();

}  // namespace tessera::optim::detail
