#include "detail/attention.hpp"

#include "tessera/kernels/attention_backward.hpp"

namespace tessera::model::detail {

CausalSelfAttention::CausalSelfAttention(UnitSpec& unit, std::string const& name,
                                         AttentionOptions const& options)
    : options_(options),
      qkv_(unit, name, options.qkv),
      output_(unit, name + "." + options.output_name,
              {.in = options.qkv.query_width(),
               .out = options.qkv.width,
               .layout = options.qkv.weights,
               .bias = options.output_bias},
              options.output_stddev) {}

kernels::AttentionConfig CausalSelfAttention::config(PassContext const& pass) const {
  return {.dtype = pass.dtype,
          .shape = {.batch = pass.batch,
                    .sequence = pass.sequence,
                    .heads = options_.qkv.heads,
                    .kv_heads = options_.qkv.kv_heads,
                    .head_dim = options_.qkv.head_dim,
                    .scale = static_cast<float>(options_.scale)},
          .drop = dropout(pass)};
}

Dropout CausalSelfAttention::dropout(PassContext const& pass) const {
  return pass.dropout(options_.dropout, options_.layer, DropoutSite::attention_weights,
                      options_.qkv.heads * pass.sequence * pass.sequence);
}

CausalSelfAttention::Saved CausalSelfAttention::mix(PassContext const& pass,
                                                    WeightLease const& weights,
                                                    ConstTensorView in) const {
  std::int64_t const mixed_width = options_.qkv.query_width();
  Saved const saved{
      .qkv = qkv_.allocate(pass),
      .mixed = pass.allocate(pass.positions(), mixed_width),
      .lse = pass.arena.allocate(Dtype::fp32, {pass.batch, options_.qkv.heads, pass.sequence})};
  qkv_.forward(pass, weights, saved.qkv, in);
  kernels::attention(pass.compute, config(pass),
                     {saved.mixed.reshape({pass.batch, pass.sequence, mixed_width}), saved.lse},
                     qkv_.heads<kernels::AttentionInput>(saved.qkv));
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
  std::int64_t const mixed_width = options_.qkv.query_width();
  QkvProjection::Rows const dqkv = qkv_.allocate(pass);
  TensorView const dmixed = pass.allocate(pass.positions(), mixed_width);
  TensorView const workspace =
      pass.allocate_fp32(kernels::attention_backward_workspace(pass.compute, config.shape));

  output_.backward(pass, leases, dmixed, dout, saved.mixed);
  auto const by_row = {pass.batch, pass.sequence, mixed_width};
  kernels::attention_backward(pass.compute, config, qkv_.heads<kernels::AttentionGradients>(dqkv),
                              qkv_.heads<kernels::AttentionInput>(saved.qkv),
                              {dmixed.reshape(by_row), saved.mixed.reshape(by_row), saved.lse},
                              workspace);
  qkv_.backward(pass, leases, din, dqkv, in);
}

}  // namespace tessera::model::detail
