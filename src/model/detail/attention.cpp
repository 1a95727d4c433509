#include "detail/attention.hpp"

#include "tessera/kernels/attention_backward.hpp"

namespace tessera::model::detail {
namespace {

/// Query, key and value parts of a fused [R, q | k | v] buffer.
template <class Part, class View>
struct Parts {
  Part query, key, value;
  Parts(View qkv, kernels::AttentionShape const& shape) {
    auto* const base = static_cast<typename View::Byte*>(qkv.data());
    auto const bytes = [&](int heads) {
      return static_cast<std::size_t>(heads) * static_cast<std::size_t>(shape.head_dim) *
             size_of(qkv.dtype());
    };
    query = {base, qkv.dim(1)};
    key = {base + bytes(shape.heads), qkv.dim(1)};
    value = {base + bytes(shape.heads + shape.kv_heads), qkv.dim(1)};
  }
};
using InputParts = Parts<kernels::AttentionInput, ConstTensorView>;
using OutputParts = Parts<kernels::AttentionOutput, TensorView>;

}  // namespace

CausalSelfAttention::CausalSelfAttention(UnitSpec& unit, std::string const& name,
                                         AttentionOptions const& options)
    : options_(options),
      qkv_(unit, name + ".c_attn",
           {.in = options.width, .out = qkv_width(), .layout = options.layout}, options.stddev),
      output_(unit, name + ".c_proj",
              {.in = mixed_width(), .out = options.width, .layout = options.layout},
              options.projection_stddev) {}

kernels::AttentionShape CausalSelfAttention::shape(PassContext const& pass) const {
  return {.batch = pass.batch,
          .sequence = pass.sequence,
          .heads = options_.heads,
          .kv_heads = options_.kv_heads,
          .head_dim = options_.head_dim,
          .scale = static_cast<float>(options_.scale)};
}

Dropout CausalSelfAttention::dropout(PassContext const& pass) const {
  return pass.dropout(options_.dropout, options_.layer, DropoutSite::attention_weights,
                      options_.heads * pass.sequence * pass.sequence);
}

CausalSelfAttention::Saved CausalSelfAttention::mix(PassContext const& pass,
                                                    WeightLease const& weights,
                                                    ConstTensorView in) const {
  std::int64_t const rows = pass.positions();
  Saved const saved{
      .qkv = pass.allocate(rows, qkv_width()),
      .mixed = pass.allocate(rows, mixed_width()),
      .lse = pass.arena.allocate(Dtype::fp32, {pass.batch, options_.heads, pass.sequence})};
  qkv_.forward(pass, weights, saved.qkv, in);
  auto const how = shape(pass);
  InputParts const parts(saved.qkv, how);
  kernels::attention(pass.compute, pass.dtype, how,
                     saved.mixed.reshape({pass.batch, pass.sequence, mixed_width()}), saved.lse,
                     parts.query, parts.key, parts.value, dropout(pass));
  return saved;
}

void CausalSelfAttention::project(PassContext const& pass, WeightLease const& weights,
                                  TensorView out, Saved const& saved) const {
  output_.forward(pass, weights, out, saved.mixed);
}

void CausalSelfAttention::backward(PassContext const& pass, WeightLease const& weights,
                                   GradientLease const& gradients, TensorView din,
                                   ConstTensorView dout, ConstTensorView in,
                                   Saved const& saved) const {
  ArenaScope const scope(pass.arena);
  auto const how = shape(pass);
  TensorView const dqkv = pass.allocate(pass.positions(), qkv_width());
  TensorView const dmixed = pass.allocate(pass.positions(), mixed_width());
  TensorView const workspace =
      pass.allocate_fp32(kernels::attention_backward_workspace(pass.compute, how));

  output_.backward(pass, weights, gradients, dmixed, dout, saved.mixed);
  InputParts const parts(saved.qkv, how);
  OutputParts const dparts(dqkv, how);
  auto const by_row = {pass.batch, pass.sequence, mixed_width()};
  kernels::attention_backward(pass.compute, pass.dtype, how, dparts.query, dparts.key, dparts.value,
                              dmixed.reshape(by_row), saved.mixed.reshape(by_row), saved.lse,
                              parts.query, parts.key, parts.value, dropout(pass), workspace);
  qkv_.backward(pass, weights, gradients, din, dqkv, in);
}

}  // namespace tessera::model::detail
