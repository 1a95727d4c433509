#pragma once
/// Sums over the rows of a matrix: gradients of biases.

#include "tessera/kernels/elementwise.hpp"

namespace tessera::kernels {

/// dbias[C] (+)= sum over rows of dout[R, C], in fp32. The order depends on the shape and, between
/// host and device, on the kind of queue: on a device rows are summed in blocks whose sums go
/// through the workspace (two launches, 2 R C bytes read for 16-bit elements and at most R C / 4
/// bytes of partial sums), on the host by one thread a column.
/// @p workspace: at least bias_gradient_workspace(q, R, C) fp32 elements; overwritten.
void bias_gradient(Queue& q, TensorView dbias, ConstTensorView dout, bool accumulate,
                   TensorView workspace);
/// 0 on the host; at most about a quarter of a million on a device.
std::int64_t bias_gradient_workspace(Queue const& q, std::int64_t rows, std::int64_t columns);

}  // namespace tessera::kernels
