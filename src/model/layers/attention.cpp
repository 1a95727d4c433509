#include "layers/attention.hpp"

#include "tessera/kernels/attention/attention_decode.hpp"
#include "tessera/kernels/attention/key_value_cache.hpp"

namespace tessera::model::detail {
namespace {

std::optional<HeadNorm> head_norm(UnitSpec& unit, std::string const& name,
                                  AttentionOptions const& options, int heads) {
  if (options.head_norms == HeadNormScope::none) return std::nullopt;
  return HeadNorm(unit, name,
                  {.norm = options.head_norm,
                   .scope = options.head_norms,
                   .heads = heads,
                   .head_dim = options.qkv.head_dim});
}

/// Row 0 of the cache of @p layer: the part of a row is [kv_heads, capacity, head_dim].
kernels::CacheView layer_of(TensorView cache, PassContext const& pass, int layer) {
  std::int64_t const capacity = cache.dim(2), head_dim = cache.dim(3);
  return {cache.rows(layer * pass.batch, pass.batch).data(), cache.dim(1) * capacity * head_dim,
          head_dim, capacity * head_dim};
}
kernels::ConstCacheView reading(kernels::CacheView const& cache) {
  return {cache.base, cache.batch_stride, cache.position_stride, cache.head_stride};
}

}  // namespace

CausalSelfAttention::CausalSelfAttention(UnitSpec& unit, std::string const& name,
                                         AttentionOptions const& options)
    : options_(options),
      qkv_(unit, name, options.qkv),
      query_norm_(
          head_norm(unit, name + "." + options.query_norm_name, options, options.qkv.heads)),
      key_norm_(head_norm(unit, name + "." + options.key_norm_name, options, options.qkv.kv_heads)),
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
                    .scale = static_cast<float>(options_.scale),
                    .mask = options_.mask},
          .drop = dropout(pass)};
}

Dropout CausalSelfAttention::dropout(PassContext const& pass) const {
  return pass.dropout(options_.dropout, options_.layer, DropoutSite::attention_weights,
                      options_.qkv.heads * pass.sequence * pass.sequence);
}

CausalSelfAttention::Saved CausalSelfAttention::allocate(PassContext const& pass,
                                                         WeightLease const& weights) const {
  std::int64_t const rows = pass.positions();
  Saved out;
  out.qkv = qkv_.allocate(pass, weights);
  if (query_norm_) out.query = pass.allocate(rows, options_.qkv.query_width());
  if (key_norm_) out.key = pass.allocate(rows, options_.qkv.kv_width());
  out.mixed = pass.allocate(rows, options_.qkv.query_width());
  out.lse = pass.arena.allocate(Dtype::fp32, {pass.batch, options_.qkv.heads, pass.sequence});
  return out;
}

kernels::AttentionGradients CausalSelfAttention::operands(Saved const& saved) const {
  auto heads = qkv_.heads<kernels::AttentionGradients>(saved.qkv);
  if (query_norm_) heads.query = {saved.query.data(), saved.query.dim(1)};
  if (key_norm_) heads.key = {saved.key.data(), saved.key.dim(1)};
  return heads;
}

void CausalSelfAttention::rotate(PassContext const& pass, kernels::AttentionGradients const& heads,
                                 kernels::RotaryDirection direction) const {
  if (options_.rotary_dim == 0) return;
  kernels::Rotation rotation{.shape = {.dtype = pass.dtype,
                                       .batch = pass.batch,
                                       .sequence = pass.sequence,
                                       .heads = options_.qkv.heads,
                                       .head_dim = options_.qkv.head_dim,
                                       .rotary_dim = options_.rotary_dim},
                             .tables = pass.rotary};
  rotation.positions.each = pass.position_ids;
  if (pass.cache) rotation.positions.first_of_row = pass.cache->first;
  kernels::rotate_heads(pass.compute, rotation, heads.query, heads.query, direction);
  rotation.shape.heads = options_.qkv.kv_heads;
  kernels::rotate_heads(pass.compute, rotation, heads.key, heads.key, direction);
}

CausalSelfAttention::Saved CausalSelfAttention::mix(PassContext const& pass,
                                                    WeightLease const& weights,
                                                    ConstTensorView in) const {
  Saved saved = allocate(pass, weights);
  qkv_.forward(pass, weights, saved.qkv, in);
  auto const projected = qkv_.heads<kernels::AttentionGradients>(saved.qkv),
             heads = operands(saved);
  if (query_norm_)
    saved.query_rstd = query_norm_->forward(pass, weights, {heads.query, projected.query});
  if (key_norm_) saved.key_rstd = key_norm_->forward(pass, weights, {heads.key, projected.key});
  rotate(pass, heads, kernels::RotaryDirection::forward);
  if (pass.cache) append(pass, heads);
  if (pass.cache && !pass.cache->begins) {
    decode(pass, heads.query, saved.mixed);
    return saved;
  }
  kernels::attention(
      pass.compute, config(pass),
      {saved.mixed.reshape({pass.batch, pass.sequence, options_.qkv.query_width()}), saved.lse},
      {heads.query, heads.key, heads.value, pass.documents});
  return saved;
}

void CausalSelfAttention::append(PassContext const& pass,
                                 kernels::AttentionGradients const& heads) const {
  kernels::CacheShape const shape{.dtype = pass.dtype,
                                  .batch = pass.batch,
                                  .queries = pass.sequence,
                                  .heads = options_.qkv.kv_heads,
                                  .head_dim = options_.qkv.head_dim};
  auto const& cache = *pass.cache;
  kernels::append_to_cache(pass.compute, shape, layer_of(cache.keys, pass, options_.layer),
                           heads.key, cache.lengths);
  kernels::append_to_cache(pass.compute, shape, layer_of(cache.values, pass, options_.layer),
                           heads.value, cache.lengths);
}

void CausalSelfAttention::decode(PassContext const& pass, kernels::ConstHeadsView const& query,
                                 TensorView mixed) const {
  ArenaScope const scope(pass.arena);
  auto const& cache = *pass.cache;
  kernels::DecodeShape const shape{.dtype = pass.dtype,
                                   .batch = pass.batch,
                                   .queries = pass.sequence,
                                   .heads = options_.qkv.heads,
                                   .kv_heads = options_.qkv.kv_heads,
                                   .head_dim = options_.qkv.head_dim,
                                   .scale = static_cast<float>(options_.scale),
                                   .mask = options_.mask,
                                   .max_length = cache.longest};
  TensorView const workspace =
      pass.allocate_fp32(kernels::attention_decode_workspace(pass.compute, shape));
  kernels::attention_decode(pass.compute, shape,
                            mixed.reshape({pass.batch, pass.sequence, options_.qkv.query_width()}),
                            {query, reading(layer_of(cache.keys, pass, options_.layer)),
                             reading(layer_of(cache.values, pass, options_.layer)), cache.lengths},
                            workspace);
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
  QkvProjection::Rows const dqkv = qkv_.allocate(pass, leases.weights);
  TensorView const dmixed = pass.allocate(pass.positions(), mixed_width);
  TensorView const workspace =
      pass.allocate_fp32(kernels::attention_backward_workspace(pass.compute, config.shape));

  output_.backward(pass, leases, dmixed, dout, saved.mixed);
  auto const gradients = qkv_.heads<kernels::AttentionGradients>(dqkv),
             projected = qkv_.heads<kernels::AttentionGradients>(saved.qkv),
             heads = operands(saved);
  auto const by_row = {pass.batch, pass.sequence, mixed_width};
  kernels::attention_backward(
      pass.compute, config, gradients, {heads.query, heads.key, heads.value, pass.documents},
      {dmixed.reshape(by_row), saved.mixed.reshape(by_row), saved.lse}, workspace);
  rotate(pass, gradients, kernels::RotaryDirection::inverse);
  if (query_norm_)
    query_norm_->backward(pass, leases, gradients.query, projected.query, saved.query_rstd);
  if (key_norm_) key_norm_->backward(pass, leases, gradients.key, projected.key, saved.key_rstd);
  qkv_.backward(pass, leases, din, dqkv, in);
}

}  // namespace tessera::model::detail
