#pragma once
/// LAMB in the form of DeepSpeed's FusedLamb, with the norms of complete parameters on any number
/// of ranks.

#include "detail/optimizer_table.hpp"

namespace tessera::optim::detail {

OptimizerEntry lamb_entry();
/// The warm-up phase of OneBitLamb: LAMB without bias correction.
OptimizerEntry one_bit_lamb_entry();

}  // namespace tessera::optim::detail
