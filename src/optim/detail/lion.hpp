#pragma once
/// Lion with DeepSpeed's and bitsandbytes' decoupled weight decay.

#include "detail/optimizer_table.hpp"

namespace tessera::optim::detail {

OptimizerEntry lion_entry();

}  // namespace tessera::optim::detail
