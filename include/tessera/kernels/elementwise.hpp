#pragma once
/// Element-wise kernels. All run on @p q in its order, never synchronize, never allocate. T is
/// fp32, fp16 or bf16 as the views say; arithmetic is fp32. "accumulate" adds to the output instead
/// of overwriting it.

#include <cstdint>

#include "tessera/memory/queue.hpp"
#include "tessera/memory/tensor.hpp"

namespace tessera::kernels {

using memory::ConstTensorView;
using memory::Queue;
using memory::TensorView;

/// Which random numbers a dropout uses: element i of the tensor drops by uniform(first_element + i)
/// of Philox(seed, stream), so a mask depends on the global sample, not on the rank that computes
/// it.  Kept values are scaled by 1/(1-p). Srivastava et al., JMLR 15 (2014), in the inverted form
/// of torch.nn.Dropout.
struct Dropout {
  float p = 0.0f;  ///< 0: off
  std::uint64_t seed = 0;
  std::uint64_t stream = 0;
  std::uint64_t first_element = 0;
};

void fill(Queue& q, TensorView out, float value);
/// out = T(in), any pair of fp32, fp16, bf16 (plain copy when equal).
void cast(Queue& q, TensorView out, ConstTensorView in);
/// accumulator += in, element by element; dtypes may differ.
void add(Queue& q, TensorView accumulator, ConstTensorView in);
/// data *= factor.
void scale(Queue& q, TensorView data, float factor);
/// out = in * mask / (1-p); in and out may be the same. Also the backward pass, with the same
/// Dropout.
void dropout(Queue& q, TensorView out, ConstTensorView in, Dropout const& drop);
/// out = residual + dropout(branch); out may alias either input.
void residual_add(Queue& q, TensorView out, ConstTensorView residual, ConstTensorView branch,
                  Dropout const& drop);

/// gelu_new: 0.5 x (1 + tanh(sqrt(2/pi) (x + 0.044715 x^3))).  Hendrycks & Gimpel, arXiv
/// 1606.08415, section 2.
void gelu_new(Queue& q, TensorView out, ConstTensorView in);
/// din = dout * gelu_new'(in); din may alias dout.
void gelu_new_backward(Queue& q, TensorView din, ConstTensorView dout, ConstTensorView in);

}  // namespace tessera::kernels
