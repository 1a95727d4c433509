#pragma once
/// Activation functions of MLPs and their gated forms.

#include "tessera/kernels/elementwise/elementwise.hpp"

namespace tessera::kernels {

/// Activation function, by the names of Hugging Face's ACT2FN.
enum class Activation {
  gelu_new,      ///< tanh form; also gelu_pytorch_tanh and gelu_fast
  gelu,          ///< x Phi(x), by the error function
  silu,          ///< x logistic(x); also swish
  relu,          ///< max(x, 0)
  quick_gelu,    ///< x logistic(1.702 x)
  relu_squared,  ///< max(x, 0)^2; relu2
};

/// out [n] T = f(in).
void activate(Queue& q, Activation f, TensorView out, ConstTensorView in);
/// din [n] T = dout * f'(in).
void activate_backward(Queue& q, Activation f, TensorView din, ConstTensorView dout,
                       ConstTensorView in);

/// Rows of `width` elements, `row_stride` elements apart.
struct RowsView {
  void* base = nullptr;
  std::int64_t row_stride = 0;
};
/// Rows that are only read, see RowsView.
struct ConstRowsView {
  void const* base = nullptr;
  std::int64_t row_stride = 0;
};
/// Rows and columns of the result of a gated activation.
struct GatedShape {
  Dtype dtype = Dtype::fp32;
  std::int64_t rows = 0;
  std::int64_t width = 0;
};
/// Separate matrices, or the halves of one [R, 2 width] buffer with row_stride 2 width.
struct GatedInput {
  ConstRowsView gate, up;
};
/// The gradients of a GatedInput.
struct GatedGradients {
  RowsView gate, up;  ///< overwritten; may be the inputs
};

/// out = f(gate) * up: SwiGLU with silu, GeGLU with gelu.  Shazeer, arXiv 2002.05202. out may be
/// one of the inputs. Rounded once. 4 bytes read and 2 written per 16-bit element.
void gated_activate(Queue& q, Activation f, GatedShape const& shape, RowsView const& out,
                    GatedInput const& in);
/// dgate = dout * up * f'(gate);  dup = dout * f(gate).
void gated_activate_backward(Queue& q, Activation f, GatedShape const& shape,
                             GatedGradients const& to, ConstRowsView const& dout,
                             GatedInput const& in);

/// data [n] T = cap * tanh(data / cap), as Gemma2 caps its final logits.
void cap_logits(Queue& q, TensorView data, float cap);

}  // namespace tessera::kernels
