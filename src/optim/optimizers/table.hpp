#pragma once
/// One row per optimizer; make_spec() and make_optimizer() read the table.

#include <memory>

#include "tessera/optim/optimizer.hpp"

namespace tessera::optim::detail {

struct OptimizerEntry {
  OptimizerInfo info;
  /// Checks combinations of values, and names the states that they need.
  std::vector<StateSpec> (*states)(OptimizerSpec const& spec);
  std::unique_ptr<Optimizer> (*make)(OptimizerSpec const& spec);
};

/// Adafactor in the form of transformers, with the means of complete rows and columns on any number
/// of ranks.
OptimizerEntry adafactor_entry();

/// Adagrad with torch.optim.Adagrad's learning rate decay and L2 weight decay.
OptimizerEntry adagrad_entry();

/// Adamax, NAdam and RAdam of torch.optim.
OptimizerEntry adamax_entry();
OptimizerEntry nadam_entry();
OptimizerEntry radam_entry();

/// AdamW, and Adam with weight decay in the gradient (L2). Loshchilov & Hutter, "Decoupled Weight
/// Decay Regularization", ICLR 2019; Kingma & Ba, "Adam", ICLR 2015.
OptimizerEntry adamw_entry();
OptimizerEntry adam_entry();

/// Lion with DeepSpeed's and bitsandbytes' decoupled weight decay.
OptimizerEntry lion_entry();

/// Muon for matrices and AdamW for the other parameters, as DeepSpeed divides them.
OptimizerEntry muon_entry();

/// The optimizers of bitsandbytes with states in 8 bits. Parameters that keep fp32 states are
/// updated by the kernel of the optimizer without codes.
OptimizerEntry adamw_8bit_entry();
OptimizerEntry lion_8bit_entry();
OptimizerEntry rmsprop_8bit_entry();

/// RMSprop with torch.optim.RMSprop's centered form, momentum and L2 weight decay.
OptimizerEntry rmsprop_entry();

/// Stochastic gradient descent with torch.optim.SGD's momentum, dampening, Nesterov form and L2
/// weight decay.
OptimizerEntry sgd_entry();

/// OneBitLamb: LAMB without bias correction, which after its warm-up exchanges signs of the
/// momentum and changes the frozen ratios of the norms by what it can tell from them.
OptimizerEntry one_bit_lamb_entry();

}  // namespace tessera::optim::detail
