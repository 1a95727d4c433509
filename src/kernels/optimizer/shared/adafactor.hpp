#pragma once
/// The Adafactor update of a rank's partition, with means over the rows and columns of complete
/// parameters.

#include <cstdint>
#include <vector>

#include "tessera/kernels/elementwise/elementwise.hpp"
#include "tessera/kernels/elementwise/gradient_statistics.hpp"

namespace tessera::kernels {

/// Sums over the gradients of a parameter: squares of its weights, a free place, then the squared
/// gradients of each row and of each column.
constexpr std::int64_t adafactor_sum_count(std::int64_t rows, std::int64_t columns) {
  return 2 + rows + columns;
}

/// A parameter of rows x columns. One with a single column has no column means: its row means are
/// those of its elements.
struct AdafactorParameter {
  std::int64_t rows = 0, columns = 0;
  float* row_means = nullptr;       ///< [rows], of the squared gradients, updated
  float* column_means = nullptr;    ///< [columns], likewise
  double* sums = nullptr;           ///< adafactor_sum_count()
  double* update_square = nullptr;  ///< sum of the squares of the update
};

/// A run of a parameter's elements.
struct AdafactorRun {
  AdafactorParameter parameter;
  std::int64_t offset = 0, numel = 0;  ///< of the run in the parameter
  float* master = nullptr;             ///< fp32 weights, updated
  float* exp_avg = nullptr;            ///< mean of the updates; null without beta1
  void const* gradient = nullptr;
  void* weights_out = nullptr;  ///< 16-bit weights written from the updated master; null when the
                                ///< master is the weight
  double learning_rate = 0.0, weight_decay = 0.0;
};

/// With g2 = g^2 + epsilon_gradient, R_i and C_j its means over row i and column j:
///   r_i <- beta2 r_i + (1-beta2) R_i;  c_j <- beta2 c_j + (1-beta2) C_j
///   u = g / sqrt(r_i c_j / mean(r)), or g / sqrt(r_i) with a single column
///   lr <- lr * max(epsilon_scale, rms(p)) with scale_parameter;  u <- lr * u / max(1, rms(u) /
///   clip_threshold)
///   with exp_avg: m <- beta1 m + (1-beta1) u, and m in place of u
///   p <- p - lr * weight_decay * p - u
/// in fp32, sums in double. Source: Shazeer & Stern, "Adafactor: Adaptive Learning Rates with
/// Sublinear Memory Cost", ICML 2018, Alg. 4 and 5, in the form of transformers' Adafactor.
/// Traffic of all kernels 20 B read (24 B on a device) + 4 B written (+2).
struct AdafactorStep {
  std::vector<AdafactorRun> runs;
  Dtype gradient_dtype = Dtype::fp32;
  Dtype weights_dtype = Dtype::fp32;         ///< of weights_out
  GradientControl const* control = nullptr;  ///< in memory of the queue's space
  double beta1 = 0.0, beta2 = 0.0;
  double epsilon_gradient = 1e-30, epsilon_scale = 1e-3, clip_threshold = 1.0;
  bool scale_parameter = false;
};

/// Writes what the runs contribute to `sums`; changes nothing else. The bits do not depend on the
/// number of threads. Sums of rows and columns without elements in the runs are not written.
void adafactor_sums(Queue& q, AdafactorStep const& step);
/// Updates the means of complete parameters with sums that have been added over the ranks, and puts
/// 1 / sqrt of their factors in the place of the sums, in fp32. On a skipped step no mean changes.
void adafactor_means(Queue& q, std::vector<AdafactorParameter> const& parameters,
                     AdafactorStep const& step);
/// Writes what the runs contribute to `update_square`, after adafactor_means().
void adafactor_update_squares(Queue& q, AdafactorStep const& step);
/// Updates the weights, with squares that have been added over the ranks.
void adafactor(Queue& q, AdafactorStep const& step);

}  // namespace tessera::kernels
