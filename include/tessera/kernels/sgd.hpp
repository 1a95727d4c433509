#pragma once
/// The fused SGD update of a rank's partition.

#include <vector>

#include "tessera/kernels/step_decision.hpp"

namespace tessera::kernels {

/// A run of the partition with one set of coefficients.
struct SgdSegment {
  float* master = nullptr;           ///< fp32 weights, updated
  float* momentum_buffer = nullptr;  ///< updated; null without momentum
  void const* gradient = nullptr;
  void* weights_out = nullptr;  ///< 16-bit weights written from the updated master; null when the
                                ///< master is the weight
  std::int64_t numel = 0;
  double learning_rate = 0.0;
  double weight_decay = 0.0;
};

enum class Momentum { none, classical, nesterov };

/// One step for all segments:  g = gradient * gradient_factor + weight_decay * p, then
///   none:       p <- p - lr * g
///   classical:  b <- momentum * b + (1 - dampening) * g;  p <- p - lr * b
///   nesterov:   b as above;                               p <- p - lr * (g + momentum * b)
/// in the order of operations of torch.optim.SGD, in fp32. The first step sets b = g, without
/// dampening. An element's result depends only on its own values, not on its position in a segment.
/// The step may be destroyed after the call. Source: Sutskever et al., "On the importance of
/// initialization and momentum in deep learning", ICML 2013.
struct SgdStep {
  std::vector<SgdSegment> segments;
  Dtype gradient_dtype = Dtype::fp32;
  Dtype weights_dtype = Dtype::fp32;  ///< of weights_out
  Momentum momentum_form = Momentum::none;
  double momentum = 0.0, dampening = 0.0;
  bool first = false;  ///< step 1, whose momentum buffer is zero
  double gradient_factor = 1.0;
  /// As in AdamWStep.
  GradientControl const* control = nullptr;
};
void sgd(Queue& q, SgdStep const& step);

}  // namespace tessera::kernels
