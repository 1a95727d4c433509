#include "detail/block.hpp"

namespace tessera::model::detail {
namespace {

/// Gradient of a residual branch: that of the sum, through the branch's dropout. Without dropout it
/// is the sum's own.
ConstTensorView branch_gradient(PassContext const& pass, TensorView scratch, ConstTensorView stream,
                                Dropout const& drop) {
  if (drop.p == 0.0f) return stream;
  kernels::dropout(pass.compute, scratch, stream, drop);
  return scratch;
}

}  // namespace

Block::Block(Options options, LayerNorm norm_1, CausalSelfAttention attention, LayerNorm norm_2,
             Mlp mlp)
    : options_(options),
      norm_1_(norm_1),
      attention_(std::move(attention)),
      norm_2_(norm_2),
      mlp_(std::move(mlp)) {}

Dropout Block::dropout(PassContext const& pass, DropoutSite site) const {
  return pass.dropout(options_.residual_dropout, options_.layer, site,
                      pass.sequence * options_.width);
}

Block::Saved Block::recompute(PassContext const& pass, WeightLease const& weights,
                              TensorView scratch, ConstTensorView in) const {
  std::int64_t const rows = pass.positions(), width = options_.width;
  Saved saved;
  saved.normed_1 = pass.allocate(rows, width);
  saved.normed_2 = pass.allocate(rows, width);
  saved.middle = pass.allocate(rows, width);

  saved.norm_1 = norm_1_.forward(pass, weights, saved.normed_1, in);
  saved.attention = attention_.mix(pass, weights, saved.normed_1);
  attention_.project(pass, weights, scratch, saved.attention);
  saved.norm_2 = norm_2_.forward(pass, weights, saved.normed_2,
                                 {.sum = saved.middle,
                                  .residual = in,
                                  .branch = scratch,
                                  .drop = dropout(pass, DropoutSite::attention_output)});
  saved.mlp = mlp_.expand(pass, weights, saved.normed_2);
  return saved;
}

Block::Saved Block::forward(PassContext const& pass, WeightLease const& weights, TensorView out,
                            ConstTensorView in) const {
  Saved saved = recompute(pass, weights, out, in);
  mlp_.project(pass, weights, out, saved.mlp);
  kernels::residual_add(pass.compute, out, saved.middle, out,
                        dropout(pass, DropoutSite::mlp_output));
  return saved;
}

void Block::backward(PassContext const& pass, BackwardLeases const& leases, TensorView stream,
                     ConstTensorView in, Saved const& saved) const {
  ArenaScope const scope(pass.arena);
  TensorView const scratch = pass.allocate(pass.positions(), options_.width);
  TensorView const dnormed = pass.allocate(pass.positions(), options_.width);
  kernels::GradientTarget const dstream{stream, kernels::WriteMode::add};

  ConstTensorView const dmlp =
      branch_gradient(pass, scratch, stream, dropout(pass, DropoutSite::mlp_output));
  mlp_.backward(pass, leases, dnormed, dmlp, saved.normed_2, saved.mlp);
  norm_2_.backward(pass, leases, dstream, dnormed, saved.middle, saved.norm_2);

  ConstTensorView const dattention =
      branch_gradient(pass, scratch, stream, dropout(pass, DropoutSite::attention_output));
  attention_.backward(pass, leases, dnormed, dattention, saved.normed_1, saved.attention);
  norm_1_.backward(pass, leases, dstream, dnormed, in, saved.norm_1);
}

}  // namespace tessera::model::detail
