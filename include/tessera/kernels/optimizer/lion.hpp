#pragma once
/// The fused Lion update of a rank's partition.

#include "tessera/kernels/optimizer/quantized_update.hpp"

namespace tessera::kernels {

/// State exp_avg (m):
///   p <- p - lr * weight_decay * p;  p <- p - lr * sign(beta1 m + (1-beta1) g)
///   m <- beta2 m + (1-beta2) g
/// in fp32, with sign(0) = 0. Source: Chen et al., "Symbolic Discovery of Optimization Algorithms",
/// NeurIPS 2023, Program 1.  Traffic 12 B read + 8 B written (+2).
struct LionStep : ElementwiseUpdate {
  double beta1 = 0.9, beta2 = 0.999;
};
void lion(Queue& q, LionStep const& step);
/// The same with the state in 8 bits (signed map). @p step has no segments.
void lion_8bit(Queue& q, LionStep const& step, std::vector<QuantizedSegment> const& segments);

}  // namespace tessera::kernels
