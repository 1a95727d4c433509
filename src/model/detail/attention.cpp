#include "detail/attention.hpp"

#include "tessera/kernels/attention_backward.hpp"

namespace tessera::model::detail {
namespace {

/// The query, key and value parts of a fused [R, q | k | v] buffer.
template <class Operands, class View>
Operands split_heads(View qkv, kernels::AttentionShape const& shape) {
  auto* const base = static_cast<typename View::Byte*>(qkv.data());
  auto const bytes = [&](int heads) {
    return static_cast<std::size_t>(heads) * static_cast<std::size_t>(shape.head_dim) *
           size_of(qkv.dtype());
  };
  return {{base, qkv.dim(1)},
          {base + bytes(shape.heads), qkv.dim(1)},
          {base + bytes(shape.heads + shape.kv_heads), qkv.dim(1)}};
}

}  // namespace

CausalSelfAttention::CausalSelfAttention(UnitSpec& unit, std::string const& name,
                                         AttentionOptions const& options)
    : options_(options),
      qkv_(unit, name + ".c_attn",
           {.in = options.width, .out = qkv_width(), .layout = options.layout}, options.stddev),
      output_(unit, name + ".c_proj",
              {.in = mixed_width(), .out = options.width, .layout = options.layout},
              options.projection_stddev) {}

kernels::AttentionConfig CausalSelfAttention::config(PassContext const& pass) const {
  return {.dtype = pass.dtype,
          .shape = {.batch = pass.batch,
                    .sequence = pass.sequence,
                    .heads = options_.heads,
                    .kv_heads = options_.kv_heads,
                    .head_dim = options_.head_dim,
                    .scale = static_cast<float>(options_.scale)},
          .drop = dropout(pass)};
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
  auto const config = this->config(pass);
  kernels::attention(
      pass.compute, config,
      {saved.mixed.reshape({pass.batch, pass.sequence, mixed_width()}), saved.lse},
      split_heads<kernels::AttentionInput, ConstTensorView>(saved.qkv, config.shape));
  return saved;
}

void CausalSelfAttention::project(PassContext const& pass, WeightLease const& weights,
                                  TensorView out, Saved const& saved) const {
  output_.forward(pass, weights, out, saved.mixed);
}

void CausalSelfAttention::backward(PassContext const& pass, BackwardLeases const& leases,
                                   TensorView din, ConstTensorView dout, ConstTensorView in,
                                   Saved const& saved) const {
  ArenaScope const scope(pass.arena);
  auto const config = this->config(pass);
  TensorView const dqkv = pass.allocate(pass.positions(), qkv_width());
  TensorView const dmixed = pass.allocate(pass.positions(), mixed_width());
  TensorView const workspace =
      pass.allocate_fp32(kernels::attention_backward_workspace(pass.compute, config.shape));

  output_.backward(pass, leases, dmixed, dout, saved.mixed);
  auto const to = split_heads<kernels::AttentionGradients>(dqkv, config.shape);
  auto const from = split_heads<kernels::AttentionInput, ConstTensorView>(saved.qkv, config.shape);
  auto const by_row = {pass.batch, pass.sequence, mixed_width()};
  kernels::attention_backward(pass.compute, config, to, from,
                              {dmixed.reshape(by_row), saved.mixed.reshape(by_row), saved.lse},
                              workspace);
  qkv_.backward(pass, leases, din, dqkv, in);
}

}  // namespace tessera::model::detail
