#pragma once
/// Muon for matrices and AdamW for the other parameters, as DeepSpeed divides them.

#include "detail/optimizer_table.hpp"

namespace tessera::optim::detail {

OptimizerEntry muon_entry();

}  // namespace tessera::optim::detail
