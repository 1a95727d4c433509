#include "decoder/block.hpp"

namespace tessera::model::detail {
namespace {

/// Gradient of a residual branch: that of the sum, through the branch's dropout. Without dropout it
/// may be the sum's own.
ConstTensorView branch_gradient(PassContext const& pass, TensorView scratch, ConstTensorView stream,
                                Dropout const& drop) {
  if (drop.p == 0.0f && stream.dtype() == scratch.dtype()) return stream;
  kernels::dropout(pass.compute, scratch, stream, drop);
  return scratch;
}

/// Rows for the gradient of a branch, in the memory of @p stream: as a product reads them, or as
/// @p last, the norm at the end of the branch, does.
TensorView gradient_rows(PassContext const& pass, TensorView stream,
                         std::optional<Norm> const& last = std::nullopt) {
  bool const is_read_in_fp32 = last || pass.fp8;
  return is_read_in_fp32 ? stream
                         : TensorView(stream.data(), pass.dtype, {stream.dim(0), stream.dim(1)});
}

/// A norm, or none, with its input and what its forward pass kept.
struct NormInput {
  std::optional<Norm> const& norm;
  ConstTensorView in;
  Norm::Saved const& saved;
};

/// @p dout through the norm after a branch, in new rows; without a norm itself.
ConstTensorView through_norm(PassContext const& pass, BackwardLeases const& leases,
                             ConstTensorView dout, NormInput const& of) {
  if (!of.norm) return dout;
  TensorView const din = pass.allocate_stream(dout.dim(0), dout.dim(1));
  of.norm->backward(pass, leases, {{din}}, dout, of.in, of.saved);
  return din;
}

/// Adds the gradient of a branch's input to that of the residual stream, through the norm before
/// the branch if there is one.
void add_to_stream(PassContext const& pass, BackwardLeases const& leases, TensorView stream,
                   ConstTensorView dout, NormInput const& of) {
  if (!of.norm) return kernels::add(pass.compute, stream, dout);
  of.norm->backward(pass, leases, {{stream, kernels::WriteMode::add}}, dout, of.in, of.saved);
}

}  // namespace

Block::Block(Options options, BlockNorms norms, CausalSelfAttention attention, Mlp mlp)
    : options_(options), norms_(norms), attention_(std::move(attention)), mlp_(std::move(mlp)) {
  TESSERA_EXPECT(
      options_.residual == Residual::sequential || (!norms_.after_attention && !norms_.after_mlp),
      "a parallel block has no norms after its branches");
}

Dropout Block::dropout(PassContext const& pass, DropoutSite site) const {
  return pass.dropout(options_.residual_dropout, options_.layer, site,
                      pass.sequence * options_.width);
}

Norm::Saved Block::enter_attention(PassContext const& pass, WeightLease const& weights,
                                   TensorView normed, ConstTensorView in) const {
  Norm const& norm = *norms_.before_attention;
  PendingSum* const pending = pass.pending;
  if (!pending || pending->sum.empty()) return norm.forward(pass, weights, normed, in);
  TESSERA_EXPECT(pending->sum.data() == in.data());
  Norm::Residual const sum{pending->sum, pending->residual, pending->sum, pending->drop};
  pending->sum = {};
  return norm.forward(pass, weights, normed, sum);
}

Block::Saved Block::recompute(PassContext const& pass, WeightLease const& weights,
                              TensorView scratch, ConstTensorView in) const {
  Saved saved;
  saved.attention_in = in;
  if (!norms_.before_attention && pass.pending) pass.pending->compute(pass.compute);
  if (norms_.before_attention) {
    TensorView const normed = normed_rows(pass);
    saved.before_attention = enter_attention(pass, weights, normed, in);
    saved.attention_in = normed;
  }
  saved.attention = attention_.mix(pass, weights, saved.attention_in);
  if (options_.residual == Residual::parallel)
    enter_mlp_in_parallel(pass, weights, in, saved);
  else
    enter_mlp(pass, weights, scratch, in, saved);
  saved.mlp = mlp_.expand(pass, weights, saved.mlp_in);
  if (norms_.after_mlp) {
    saved.mlp_out = allocate(pass);
    mlp_.project(pass, weights, saved.mlp_out, saved.mlp);
    saved.after_mlp = norms_.after_mlp->forward(pass, weights, scratch, saved.mlp_out);
  }
  return saved;
}

SharedActivations Block::share(PassContext const& pass) const {
  bool const norms = norms_.before_attention || norms_.before_mlp;
  return {norms ? allocate(pass) : TensorView{}, pass.allocate(pass.positions(), mlp_.inner())};
}

void Block::restore_attention_in(PassContext const& pass, WeightLease const& weights,
                                 ConstTensorView in) const {
  if (pass.recompute != Recompute::light || !norms_.before_attention) return;
  ArenaScope const scope(pass.arena);
  norms_.before_attention->forward(pass, weights, pass.shared.normed, in);
}

void Block::restore_mlp(PassContext const& pass, WeightLease const& weights, ConstTensorView in,
                        Saved const& saved) const {
  if (pass.recompute != Recompute::light) return;
  mlp_.activate(pass, saved.mlp);
  bool const parallel = options_.residual == Residual::parallel;
  if (parallel && !norms_.before_mlp) return restore_attention_in(pass, weights, in);
  if (!norms_.before_mlp) return;
  ArenaScope const scope(pass.arena);
  norms_.before_mlp->forward(pass, weights, pass.shared.normed,
                             parallel ? in : ConstTensorView(saved.middle));
}

void Block::enter_mlp(PassContext const& pass, WeightLease const& weights, TensorView scratch,
                      ConstTensorView in, Saved& saved) const {
  if (norms_.after_attention) {
    saved.attention_out = allocate(pass);
    attention_.project(pass, weights, saved.attention_out, saved.attention);
    saved.after_attention =
        norms_.after_attention->forward(pass, weights, scratch, saved.attention_out);
  } else {
    attention_.project(pass, weights, scratch, saved.attention);
  }
  saved.middle = allocate_stream(pass);
  Dropout const drop = dropout(pass, DropoutSite::attention_output);
  if (norms_.before_mlp) {
    TensorView const normed = normed_rows(pass);
    saved.before_mlp = norms_.before_mlp->forward(
        pass, weights, normed,
        {.sum = saved.middle, .residual = in, .branch = scratch, .drop = drop});
    saved.mlp_in = normed;
  } else {
    kernels::residual_add(pass.compute, saved.middle, in, scratch, drop);
    saved.mlp_in = saved.middle;
  }
}

void Block::enter_mlp_in_parallel(PassContext const& pass, WeightLease const& weights,
                                  ConstTensorView in, Saved& saved) const {
  saved.mlp_in = saved.attention_in;
  if (!norms_.before_mlp) return;
  TensorView const normed = normed_rows(pass);
  saved.before_mlp = norms_.before_mlp->forward(pass, weights, normed, in);
  saved.mlp_in = normed;
}

Block::Saved Block::forward(PassContext const& pass, WeightLease const& weights, TensorView out,
                            ConstTensorView in) const {
  Saved saved = recompute(pass, weights, out, in);
  Dropout const drop = dropout(pass, DropoutSite::mlp_output);
  if (options_.residual == Residual::parallel) {
    ArenaScope const scope(pass.arena);
    TensorView const branch = allocate_stream(pass);
    attention_.project(pass, weights, branch, saved.attention);
    kernels::residual_add(pass.compute, out, in, branch,
                          dropout(pass, DropoutSite::attention_output));
    mlp_.project(pass, weights, branch, saved.mlp);
    kernels::residual_add(pass.compute, out, out, branch, drop);
    return saved;
  }
  if (!norms_.after_mlp) mlp_.project(pass, weights, out, saved.mlp);  // else recompute() has
  PendingSum sum{out, saved.middle, drop};
  if (pass.pending)
    *pass.pending = sum;
  else
    sum.compute(pass.compute);
  return saved;
}

void Block::backward(PassContext const& pass, BackwardLeases const& leases, TensorView stream,
                     ConstTensorView in, Saved const& saved) const {
  ArenaScope const scope(pass.arena);
  restore_mlp(pass, leases.weights, in, saved);
  if (options_.residual == Residual::parallel)
    backward_parallel(pass, leases, stream, in, saved);
  else
    backward_sequential(pass, leases, stream, in, saved);
}

void Block::backward_sequential(PassContext const& pass, BackwardLeases const& leases,
                                TensorView stream, ConstTensorView in, Saved const& saved) const {
  TensorView const scratch = allocate_stream(pass), dnormed = allocate_stream(pass);
  {
    ArenaScope const scope(pass.arena);
    ConstTensorView const dbranch =
        branch_gradient(pass, gradient_rows(pass, scratch, norms_.after_mlp), stream,
                        dropout(pass, DropoutSite::mlp_output));
    mlp_.backward(
        pass, leases, dnormed,
        through_norm(pass, leases, dbranch, {norms_.after_mlp, saved.mlp_out, saved.after_mlp}),
        saved.mlp_in, saved.mlp);
  }
  Dropout const drop = dropout(pass, DropoutSite::attention_output);
  TensorView const branch_rows = gradient_rows(pass, scratch, norms_.after_attention);
  NormInput const mlp_norm{norms_.before_mlp, saved.middle, saved.before_mlp};
  ConstTensorView dbranch;
  if (mlp_norm.norm && drop.p == 0.0f && branch_rows.dtype() != stream.dtype()) {
    mlp_norm.norm->backward(pass, leases, {{stream, kernels::WriteMode::add}, branch_rows}, dnormed,
                            mlp_norm.in, mlp_norm.saved);
    dbranch = branch_rows;
  } else {
    add_to_stream(pass, leases, stream, dnormed, mlp_norm);
    dbranch = branch_gradient(pass, branch_rows, stream, drop);
  }
  restore_attention_in(pass, leases.weights, in);
  attention_.backward(
      pass, leases, dnormed,
      through_norm(pass, leases, dbranch,
                   {norms_.after_attention, saved.attention_out, saved.after_attention}),
      saved.attention_in, saved.attention);
  add_to_stream(pass, leases, stream, dnormed,
                {norms_.before_attention, in, saved.before_attention});
}

void Block::backward_parallel(PassContext const& pass, BackwardLeases const& leases,
                              TensorView stream, ConstTensorView in, Saved const& saved) const {
  TensorView const scratch = gradient_rows(pass, allocate_stream(pass)),
                   dmlp_in = allocate_stream(pass), dattention_in = allocate_stream(pass);
  mlp_.backward(pass, leases, dmlp_in,
                branch_gradient(pass, scratch, stream, dropout(pass, DropoutSite::mlp_output)),
                saved.mlp_in, saved.mlp);
  if (norms_.before_mlp) restore_attention_in(pass, leases.weights, in);
  attention_.backward(
      pass, leases, dattention_in,
      branch_gradient(pass, scratch, stream, dropout(pass, DropoutSite::attention_output)),
      saved.attention_in, saved.attention);
  if (norms_.before_mlp)
    add_to_stream(pass, leases, stream, dmlp_in, {norms_.before_mlp, in, saved.before_mlp});
  else
    kernels::add(pass.compute, dattention_in, dmlp_in);
  add_to_stream(pass, leases, stream, dattention_in,
                {norms_.before_attention, in, saved.before_attention});
}

}  // namespace tessera::model::detail
