#pragma once
/// OneBitLamb: LAMB without bias correction, which after its warm-up exchanges signs of the
/// momentum and changes the frozen ratios of the norms by what it can tell from them.

#include "detail/optimizer_table.hpp"

namespace tessera::optim::detail {

OptimizerEntry one_bit_lamb_entry();

}  // namespace tessera::optim::detail
