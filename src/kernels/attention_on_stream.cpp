#include "detail/attention_on_stream.hpp"

#include "detail/attention_rows.hpp"

namespace tessera::kernels::detail {

void attention_on_stream(Queue& q, Dtype dtype, AttentionShape const& shape, TensorView out, TensorView lse, AttentionInput query,
                         AttentionInput key, AttentionInput value, Dropout const& drop) {
  with_type(dtype, "attention", [&](auto tag) {
    using T = typename decltype(tag)::type;
    AttentionOperands<T> const operands(shape, query, key, value, drop);
    attention_rows_forward(q, operands.in, operands.rows(out.data(), operands.packed_stride()), lse.as<float>());
  });
}

void attention_backward_on_stream(Queue& q, Dtype dtype, AttentionShape const& shape, AttentionGradients const& gradients,
                                  AttentionSaved const& saved, AttentionInput query, AttentionInput key, AttentionInput value,
                                  Dropout const& drop) {
  with_type(dtype, "attention_backward", [&](auto tag) {
    using T = typename decltype(tag)::type;
    AttentionOperands<T> const operands(shape, query, key, value, drop);
    AttentionRowsBackward<T> const rule{operands.in, operands.rows(saved.dout.data(), operands.packed_stride()),
                                        operands.rows(saved.out.data(), operands.packed_stride()), saved.lse.as<float>()};
    attention_rows_backward(q, rule, operands.rows(gradients.query.base, gradients.query.row_stride),
                            operands.rows(gradients.key.base, gradients.key.row_stride),
                            operands.rows(gradients.value.base, gradients.value.row_stride));
  });
}

}  // namespace tessera::kernels::detail
