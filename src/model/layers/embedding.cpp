#include "layers/embedding.hpp"

#include <cmath>

#include "tessera/kernels/loss/embedding.hpp"

namespace tessera::model::detail {

Embedding::Embedding(UnitSpec& unit, EmbeddingOptions const& options)
    : options_(options),
      tokens_(add_parameter(unit, options.token_name, {options.vocabulary, options.width},
                            normal(options.stddev))) {
  TESSERA_EXPECT(options.scale == 1.0 || options.position_name.empty());
  unit.parameters[tokens_].aliases = options.token_aliases;
  unit.parameters[tokens_].init.zero_row = options.padding_id;
  if (!options.position_name.empty())
    positions_ = add_parameter(unit, options.position_name, {options.positions, options.width},
                               normal(options.stddev));
}

Dropout Embedding::dropout(PassContext const& pass) const {
  return pass.dropout(options_.dropout, 0, DropoutSite::embedding, pass.sequence * options_.width);
}

/// Jain et al., "NEFTune: Noisy Embeddings Improve Instruction Finetuning", arXiv 2310.05914.
kernels::Noise Embedding::noise(PassContext const& pass) const {
  auto const row = pass.sequence * options_.width;
  return {
      .magnitude = static_cast<float>(options_.noise_alpha / std::sqrt(static_cast<double>(row))),
      .numbers = pass.dropout(1.0, 0, DropoutSite::embedding_noise, row)};
}

float Embedding::scale(PassContext const& pass) const {
  auto const exact = static_cast<float>(options_.scale);
  return pass.stream_dtype == Dtype::bf16   ? static_cast<float>(bfloat16(exact))
         : pass.stream_dtype == Dtype::fp16 ? static_cast<float>(float16(exact))
                                            : exact;
}

void Embedding::forward(PassContext const& pass, WeightLease const& weights, TensorView out,
                        ConstTensorView tokens) const {
  auto const by_row = {pass.batch, pass.sequence, options_.width};
  bool const noisy = pass.dropout_on && options_.noise_alpha > 0.0;
  kernels::PositionTable positions;
  if (positions_)
    positions = {weights[*positions_],
                 pass.cache && !pass.cache->begins ? pass.cache->positions : pass.position_ids};
  kernels::embedding(pass.compute, out.reshape(by_row), tokens, weights[tokens_], positions,
                     noisy ? Dropout{} : dropout(pass));
  if (noisy) {
    kernels::add_noise(pass.compute, out, noise(pass));
    kernels::dropout(pass.compute, out, out, dropout(pass));
  }
  if (options_.scale != 1.0) kernels::scale(pass.compute, out, scale(pass));
}

/// A tied head has added to the row already, and earlier micro-steps have.
TensorView Embedding::padding_row(PassContext const& pass, GradientLease const& gradients) const {
  TensorView const tokens = gradients[tokens_];
  if (options_.padding_id < 0 || tokens.empty() || !gradients.accumulate()) return {};
  TensorView const kept = pass.arena.allocate(tokens.dtype(), {1, options_.width});
  kernels::cast(pass.compute, kept, tokens.rows(options_.padding_id, 1));
  return kept;
}

void Embedding::backward(PassContext const& pass, GradientLease const& gradients,
                         BackwardInput const& from) const {
  ArenaScope const scope(pass.arena);
  TensorView const parts = pass.allocate_fp32(
      kernels::embedding_backward_parts(pass.compute, pass.positions(), options_.width));
  std::int64_t const used = pass.sequence, unused = options_.positions - used;
  auto const mode = gradients.mode();
  bool const by_id = !pass.position_ids.empty();
  TensorView dpositions, dtokens = gradients[tokens_];
  // positions that train without their tokens: the kernel writes those to rows that nobody reads
  if (dtokens.empty())
    dtokens = pass.arena.allocate(pass.stream_dtype, {options_.vocabulary, options_.width});
  if (positions_ && !by_id && !gradients[*positions_].empty()) {
    if (!gradients.accumulate() && unused > 0)
      kernels::fill(pass.compute, gradients[*positions_].rows(used, unused), 0.0f);
    dpositions = gradients[*positions_].rows(0, used);
  }
  ConstTensorView dout = from.dout;
  if (options_.scale != 1.0) {
    TensorView const scaled = pass.allocate_stream(dout.dim(0), dout.dim(1));
    kernels::cast(pass.compute, scaled, dout);
    kernels::scale(pass.compute, scaled, scale(pass));
    dout = scaled;
  }
  dout = dout.reshape({pass.batch, used, options_.width});
  TensorView const kept = padding_row(pass, gradients);
  kernels::embedding_backward(pass.compute, dropout(pass), {{dtokens, mode}, {dpositions, mode}},
                              {dout, from.tokens, {from.order, parts}});
  if (options_.padding_id >= 0) {
    TensorView const row = dtokens.rows(options_.padding_id, 1);
    if (kept.empty())
      kernels::fill(pass.compute, row, 0.0f);
    else
      kernels::cast(pass.compute, row, kept);
  }
  if (positions_ && by_id && !gradients[*positions_].empty())  // rows of a table, as tokens are
    kernels::embedding_backward(pass.compute, dropout(pass), {{gradients[*positions_], mode}, {}},
                                {dout, pass.position_ids, {from.position_order, parts}});
}

void Embedding::clear_positions(PassContext const& pass, GradientLease const& gradients) const {
  if (positions_ && !gradients[*positions_].empty())
    kernels::fill(pass.compute, gradients[*positions_], 0.0f);
}

}  // namespace tessera::model::detail
