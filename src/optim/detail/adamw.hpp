#pragma once
/// AdamW, and Adam with weight decay in the gradient (L2). Loshchilov & Hutter, "Decoupled Weight
/// Decay Regularization", ICLR 2019; Kingma & Ba, "Adam", ICLR 2015.

#include "detail/optimizer_table.hpp"

namespace tessera::optim::detail {

OptimizerEntry adamw_entry();
OptimizerEntry adam_entry();

}  // namespace tessera::optim::detail
