#pragma once
/// RMSprop with torch.optim.RMSprop's centered form, momentum and L2 weight decay.

#include "detail/optimizer_table.hpp"

namespace tessera::optim::detail {

OptimizerEntry rmsprop_entry();

}  // namespace tessera::optim::detail
