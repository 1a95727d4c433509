#pragma once
/// Sums over the rows of a matrix: gradients of biases.

#include "tessera/kernels/elementwise/elementwise.hpp"

namespace tessera::kernels {

/// dbias [C] (+)= sum over rows of dout [R, C], in fp32; any pair of fp32, fp16 and bf16. dbias
/// must not alias dout. Deterministic: the order of summation depends on the shape and on the kind
/// of queue. A device sums tiles of rows, then the tiles' partial sums from the workspace: two
/// launches, 2 R C bytes read for 16-bit elements and at most R C / 4 bytes of partial sums. The
/// host sums a column on one thread.
/// @p workspace: at least bias_gradient_workspace(q, R, C) fp32 elements; overwritten.
void bias_gradient(Queue& q, GradientTarget const& dbias, ConstTensorView dout,
                   TensorView workspace);
/// 0 on the host; at most about a quarter of a million on a device.
std::int64_t bias_gradient_workspace(Queue const& q, std::int64_t rows, std::int64_t columns);

}  // namespace tessera::kernels
