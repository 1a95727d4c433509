#pragma once
/// The Muon update: momentum, orthogonal directions of complete matrices, and the step.

#include <cstdint>

#include "tessera/kernels/optimizer/elementwise_update.hpp"

namespace tessera::kernels {

/// States momentum_buffer (m) and the direction u, in one pass:
///   m <- m + (1-momentum) (g - m);  u <- g + momentum (m - g)
/// in fp32; weights do not change, and weights_out is not used. Source: Jordan et al., "Muon: An
/// optimizer for hidden layers in neural networks", 2024, with Nesterov's form, as DeepSpeed has
/// it. Traffic 12 B read + 8 B written.
struct MuonStep : ElementwiseUpdate {
  double momentum = 0.95;
};
void muon_directions(Queue& q, MuonStep const& step);

/// State u, which is only read: p <- p - lr * weight_decay * p - lr * u.
void muon_update(Queue& q, ElementwiseUpdate const& step);

/// Elements of fp32 that orthogonalize() needs besides the matrix.
std::int64_t orthogonalize_workspace(std::int64_t rows, std::int64_t columns);

/// matrix [rows, columns] fp32 <- sqrt(max(1, rows / columns)) times its nearest orthogonal matrix,
/// approximately: X = matrix / (|matrix| + 1e-7), then 5 times
///   A = X X^T;  X <- 3.4445 X + (-4.7750 A + 2.0315 A A) X
/// or, with more rows than columns, A = X^T X and products from the right. In fp32.
void orthogonalize(Queue& q, float* matrix, std::int64_t rows, std::int64_t columns,
                   float* workspace);

}  // namespace tessera::kernels
