#pragma once
/// The optimizers of bitsandbytes with states in 8 bits. Parameters that keep fp32 states are
/// updated by the kernel of the optimizer without codes.

#include "detail/optimizer_table.hpp"

namespace tessera::optim::detail {

OptimizerEntry adamw_8bit_entry();
OptimizerEntry lion_8bit_entry();
OptimizerEntry rmsprop_8bit_entry();

}  // namespace tessera::optim::detail
