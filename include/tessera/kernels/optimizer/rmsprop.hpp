#pragma once
/// The fused RMSprop update of a rank's partition.

#include "tessera/kernels/optimizer/quantized_update.hpp"

namespace tessera::kernels {

/// States square_avg (s), then momentum_buffer (b) with momentum, then grad_avg (a) when centered:
///   g = gradient + weight_decay * p;  s <- alpha s + (1-alpha) g^2
///   centered: a <- a + (1-alpha) (g - a);  d = sqrt(s - a^2) + epsilon;  else d = sqrt(s) +
///   epsilon momentum: b <- momentum b + g / d;  p <- p - lr * b;  else p <- p - lr * g / d
/// in the order of operations of torch.optim.RMSprop, in fp32. Source: Hinton, Coursera lecture
/// 6e, 2012; Graves, arXiv:1308.0850 (centered).
struct RmsPropStep : ElementwiseUpdate {
  double alpha = 0.99, epsilon = 1e-8;
  double momentum = 0.0;  ///< 0: no momentum buffer
  bool centered = false;
};
void rmsprop(Queue& q, RmsPropStep const& step);
/// Without momentum and centering, with square_avg in 8 bits (signed map, as in bitsandbytes).
/// @p step has no segments.
void rmsprop_8bit(Queue& q, RmsPropStep const& step, std::vector<QuantizedSegment> const& segments);

}  // namespace tessera::kernels
