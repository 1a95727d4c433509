#pragma once
/// Adamax, NAdam and RAdam of torch.optim.

#include "detail/optimizer_table.hpp"

namespace tessera::optim::detail {

OptimizerEntry adamax_entry();
OptimizerEntry nadam_entry();
OptimizerEntry radam_entry();

}  // namespace tessera::optim::detail
