#pragma once
/// The fused SGD update of a rank's partition.

#include "tessera/kernels/optimizer/elementwise_update.hpp"

namespace tessera::kernels {

enum class Momentum { none, classical, nesterov };

/// State momentum_buffer (b), with momentum only:  g = gradient + weight_decay * p, then
///   none:       p <- p - lr * g
///   classical:  b <- momentum * b + (1 - dampening) * g;  p <- p - lr * b
///   nesterov:   b as above;                               p <- p - lr * (g + momentum * b)
/// in the order of operations of torch.optim.SGD, in fp32. The first step sets b = g, without
/// dampening. Source: Sutskever et al., "On the importance of initialization and momentum in deep
/// learning", ICML 2013.
struct SgdStep : ElementwiseUpdate {
  Momentum momentum_form = Momentum::none;
  double momentum = 0.0, dampening = 0.0;
  bool first = false;  ///< step 1, whose momentum buffer is zero
};
void sgd(Queue& q, SgdStep const& step);

}  // namespace tessera::kernels
