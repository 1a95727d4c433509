#pragma once
/// Element-wise kernels, and the types that all kernels share.
///
/// Every kernel runs in the order of its queue and neither synchronizes nor allocates. T is fp32,
/// fp16 or bf16, as the views say; arithmetic is fp32. Unless a kernel says otherwise it overwrites
/// its output, an output may be one of the inputs but not overlap it partly, and equal inputs give
/// equal bits for any number of threads. Bytes moved per element are those of the operands.

#include <cstdint>
#include <vector>

#include "tessera/memory/queue.hpp"
#include "tessera/memory/tensor.hpp"

namespace tessera::kernels {

using memory::ConstTensorView;
using memory::Queue;
using memory::TensorView;
using memory::WriteMode;

/// A gradient that a kernel writes: dx = ... or dx += ...
struct GradientTarget {
  TensorView view;
  WriteMode mode = WriteMode::overwrite;
};

/// Where a pass is in a run. Kernels read it when they run: those of a kept device graph then draw
/// the numbers of the pass that launches it.
struct DropoutPlace {
  std::uint64_t stream = 0;     ///< added to the stream of every dropout
  std::uint64_t first_row = 0;  ///< first row of the tensor in the global batch
};

/// The random numbers of a dropout. Element i of the tensor is dropped if uniform(first_element +
/// i) of Philox(seed, stream) is below p, so a mask depends on the global sample, not on the rank
/// that computes it. Kept values are scaled by 1/(1-p). Srivastava et al., JMLR 15 (2014), in the
/// inverted form of torch.nn.Dropout.
struct Dropout {
  float p = 0.0f;  ///< 0: off
  std::uint64_t seed = 0;
  std::uint64_t stream = 0;
  std::uint64_t first_element = 0;
  /// Place in the queue's memory, or null: adds place->stream to `stream`, and elements_per_row for
  /// each row before place->first_row to `first_element`.
  DropoutPlace const* place = nullptr;
  std::uint64_t elements_per_row = 0;
};

/// out [n] T = value.
void fill(Queue& q, TensorView out, float value);
/// out [n] = in [n] converted; any pair of fp32, fp16 and bf16. A copy when the dtypes are equal.
void cast(Queue& q, TensorView out, ConstTensorView in);
/// accumulator [n] += in [n]; the dtypes may differ.
void add(Queue& q, TensorView accumulator, ConstTensorView in);
/// data [n] T *= factor.
void scale(Queue& q, TensorView data, float factor);
/// out [n] T = in [n] (T or fp32) * mask / (1-p). Also the backward pass of the same Dropout.
void dropout(Queue& q, TensorView out, ConstTensorView in, Dropout const& drop);
/// out [n] T = residual + dropout(branch).
void residual_add(Queue& q, TensorView out, ConstTensorView residual, ConstTensorView branch,
                  Dropout const& drop);

/// gelu_new: out [n] T = 0.5 x (1 + tanh(sqrt(2/pi) (x + 0.044715 x^3))).  Hendrycks & Gimpel,
/// arXiv 1606.08415, section 2.
void gelu_new(Queue& q, TensorView out, ConstTensorView in);
/// din [n] T = dout * gelu_new'(in).
void gelu_new_backward(Queue& q, TensorView din, ConstTensorView dout, ConstTensorView in);

/// Uniform random numbers in [-magnitude, magnitude).
struct Noise {
  float magnitude = 0.0f;
  Dropout numbers;  ///< random numbers of this dropout, whatever its p
};

/// data [n] T += noise.
void add_noise(Queue& q, TensorView data, Noise const& noise);

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

/// *out = sum of in[i], in double; *out is in memory of the queue's space. On the host in order;
/// on a GPU thread l of 128 adds the elements l, l + 128, ... and the threads' sums are added as a
/// tree: always the same order, another than the host's. Shapes   in [n] fp32, contiguous
void sum(memory::Queue& q, double* out, memory::ConstTensorView in);
/// *sum += *addends[0], then *addends[1], ... All are in memory of the queue's space.
void add_in_order(memory::Queue& q, double* sum, std::vector<double const*> const& addends);

/// hits[r] = 1 where logits[r, targets[r]] is the largest of the first @p vocabulary logits of the
/// row, and the first of equals, as torch.argmax on the CPU; else 0, also where targets[r] < 0.
/// Shapes   hits [R] fp32, overwritten;  logits [R, at least vocabulary] fp32, fp16 or bf16;
/// targets [R] int32. Deterministic. 2 or 4 bytes read per logit.
void top1_hits(Queue& q, TensorView hits, ConstTensorView logits, ConstTensorView targets,
               std::int64_t vocabulary);

}  // namespace tessera::kernels
