#include "detail/lm_head.hpp"

#include <algorithm>

#include "tessera/kernels/cross_entropy.hpp"
#include "tessera/kernels/gemm.hpp"

namespace tessera::model::detail {
namespace {

/// Calls @p body(begin, count) for consecutive chunks of @p rows.
template <class Body>
void for_chunks(std::int64_t rows, std::int64_t chunk, Body&& body) {
  for (std::int64_t begin = 0; begin < rows; begin += chunk) body(begin, std::min(chunk, rows - begin));
}

}  // namespace

void LmHead::own_projection(UnitSpec& unit, std::string const& name, double stddev) {
  projection_ = add_parameter(unit, name, {options_.vocabulary, options_.width}, normal(stddev));
}

std::int64_t LmHead::chunk_rows(std::int64_t rows, std::int64_t vocabulary) {
  constexpr std::int64_t most_bytes = std::int64_t{64} << 20;
  std::int64_t const most_rows = std::max<std::int64_t>(1, most_bytes / (4 * vocabulary));
  std::int64_t const chunks = (rows + most_rows - 1) / most_rows;
  return (rows + chunks - 1) / chunks;
}

void LmHead::losses(Pass const& pass, WeightLease const& weights, ConstTensorView projection, TensorView losses, ConstTensorView hidden,
                    ConstTensorView targets) const {
  ArenaScope const scope(pass.arena);
  std::int64_t const rows = hidden.dim(0), chunk = chunk_rows(rows, options_.vocabulary);
  TensorView const normed = pass.allocate(rows, options_.width);
  norm_.forward(pass, weights, normed, hidden);
  TensorView const logits = pass.arena.allocate(Dtype::fp32, {chunk, options_.vocabulary});
  for_chunks(rows, chunk, [&](std::int64_t begin, std::int64_t count) {
    TensorView const part = logits.rows(0, count);
    kernels::gemm(pass.compute, {.transpose_b = true}, part, normed.rows(begin, count), projection);
    kernels::cross_entropy(pass.compute, losses.rows(begin, count), {}, part, targets.rows(begin, count), 0.0f);
  });
}

void LmHead::train(Pass const& pass, WeightLease const& weights, GradientLease const& gradients, Projection const& projection,
                   float gradient_scale, TensorView losses, TensorView dhidden, ConstTensorView hidden, ConstTensorView targets) const {
  ArenaScope const scope(pass.arena);
  std::int64_t const rows = hidden.dim(0), chunk = chunk_rows(rows, options_.vocabulary);
  TensorView const normed = pass.allocate(rows, options_.width);
  TensorView const dnormed = pass.allocate(rows, options_.width);
  LayerNorm::Saved const saved = norm_.forward(pass, weights, normed, hidden);
  TensorView const logits = pass.arena.allocate(Dtype::fp32, {chunk, options_.vocabulary});
  // in fp32 the gradient takes the place of the logits
  TensorView const dlogits = pass.dtype == Dtype::fp32 ? logits : pass.allocate(chunk, options_.vocabulary);
  for_chunks(rows, chunk, [&](std::int64_t begin, std::int64_t count) {
    TensorView const part = logits.rows(0, count), dpart = dlogits.rows(0, count), in = normed.rows(begin, count);
    kernels::gemm(pass.compute, {.transpose_b = true}, part, in, projection.weight);
    kernels::cross_entropy(pass.compute, losses.rows(begin, count), dpart, part, targets.rows(begin, count), gradient_scale);
    kernels::gemm(pass.compute, {}, dnormed.rows(begin, count), dpart, projection.weight);
    kernels::gemm(pass.compute, {.transpose_a = true, .accumulate = projection.accumulate || begin > 0}, projection.gradient, dpart, in);
  });
  norm_.backward(pass, weights, gradients, dhidden, LayerNorm::InputGradient::overwrite, dnormed, hidden, saved);
}

void LmHead::logits(Pass const& pass, WeightLease const& weights, ConstTensorView projection, TensorView out, ConstTensorView hidden) const {
  ArenaScope const scope(pass.arena);
  TensorView const normed = pass.allocate(hidden.dim(0), options_.width);
  norm_.forward(pass, weights, normed, hidden);
  kernels::gemm(pass.compute, {.transpose_b = true}, out, normed, projection);
}

}  // namespace tessera::model::detail
