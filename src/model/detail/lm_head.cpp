#include "detail/lm_head.hpp"

#include <algorithm>

#include "tessera/kernels/accuracy.hpp"
#include "tessera/kernels/activation.hpp"
#include "tessera/kernels/column_sums.hpp"
#include "tessera/kernels/cross_entropy.hpp"
#include "tessera/kernels/gemm.hpp"
#include "tessera/kernels/kernel_times.hpp"

namespace tessera::model::detail {
namespace {

/// Calls @p body(begin, count) for consecutive chunks of @p rows.
template <class Body>
void for_chunks(std::int64_t rows, std::int64_t chunk, Body&& body) {
  for (std::int64_t begin = 0; begin < rows; begin += chunk)
    body(begin, std::min(chunk, rows - begin));
}

/// Rows of equal chunks of at most @p most_bytes, or of one row.
std::int64_t equal_chunks(std::int64_t rows, std::int64_t row_bytes, std::int64_t most_bytes) {
  std::int64_t const most_rows = std::max<std::int64_t>(1, most_bytes / row_bytes);
  std::int64_t const chunks = std::max<std::int64_t>(1, (rows + most_rows - 1) / most_rows);
  return (rows + chunks - 1) / chunks;
}

/// The columns that count of a matrix whose rows are longer.
TensorView first_columns(TensorView const& rows, std::int64_t columns) {
  return {rows.data(), rows.dtype(), {rows.dim(0), columns}};
}

LmHead::Projection in_pass_dtype(PassContext const& pass, LmHead::Projection projection) {
  projection.weight = pass.in_dtype(pass.dtype, projection.weight);
  projection.bias = pass.in_dtype(pass.dtype, projection.bias);
  return projection;
}

}  // namespace

void LmHead::own_projection(UnitSpec& unit, std::string const& name, double stddev) {
  projection_ = add_parameter(unit, name, {options_.vocabulary, options_.width}, normal(stddev));
}

void LmHead::own_bias(UnitSpec& unit, std::string const& name) {
  bias_ = add_undecayed_parameter(unit, name, {options_.vocabulary}, zeros());
}

LmHead::Chunks LmHead::Chunks::of(std::int64_t rows, std::int64_t vocabulary, Dtype dtype,
                                  memory::MemorySpace space, std::optional<ChunkBytes> most) {
  constexpr std::int64_t mib = std::int64_t{1} << 20;
  if (space != memory::MemorySpace::device) {
    std::int64_t const each = equal_chunks(rows, 4 * vocabulary, 64 * mib);
    return {each, each, vocabulary};
  }
  ChunkBytes const bytes = most.value_or(ChunkBytes{512 * mib, 1024 * mib});
  std::int64_t const row = (vocabulary + 63) / 64 * 64;
  if (dtype == Dtype::fp32) {
    std::int64_t const each = equal_chunks(rows, 4 * row, bytes.logits);
    return {each, each, row};
  }
  std::int64_t const gradients = equal_chunks(rows, 2 * row, bytes.gradients);
  return {equal_chunks(gradients, 4 * row, bytes.logits), gradients, row};
}

void LmHead::score(PassContext const& pass, Projection const& projection, float gradient_scale,
                   Chunk const& chunk) const {
  kernels::gemm(pass.compute, {.transpose_b = true, .row_c = chunk.logits.dim(1)},
                first_columns(chunk.logits, options_.vocabulary), chunk.normed, projection.weight,
                {.bias = projection.bias});
  // a soft cap changes no order
  if (!chunk.hits.empty())
    kernels::top1_hits(pass.compute, chunk.hits, chunk.logits, chunk.targets, options_.vocabulary);
  TESSERA_VALIDATE(!chunk.loss || options_.soft_cap == 0.0, ConfigError,
                   "a loss of one's own gets logits without a soft cap, but the model's head has "
                   "one of ",
                   options_.soft_cap, "; such models train with cross-entropy only");
  if (chunk.loss)
    return chunk.loss->compute(pass.compute, {.first_position = chunk.first,
                                              .logits = chunk.logits,
                                              .losses = chunk.losses,
                                              .dlogits = chunk.dlogits,
                                              .targets = chunk.targets,
                                              .vocabulary = options_.vocabulary,
                                              .gradient_scale = gradient_scale});
  kernels::cross_entropy(pass.compute,
                         {.gradient_scale = gradient_scale,
                          .vocabulary = options_.vocabulary,
                          .soft_cap = static_cast<float>(options_.soft_cap),
                          .label_smoothing = static_cast<float>(options_.label_smoothing)},
                         chunk.losses, chunk.dlogits, chunk.logits, chunk.targets);
}

void LmHead::losses(PassContext const& pass, WeightLease const& weights,
                    Projection const& projection, Output const& to, Input const& from) const {
  auto const& [hidden, targets, loss] = from;
  kernels::HeadScope const in_head;
  ArenaScope const scope(pass.arena);
  std::int64_t const rows = hidden.dim(0);
  auto const chunks = chunks_of(pass, rows);
  Projection const product = in_pass_dtype(pass, projection);
  TensorView const normed = pass.allocate(rows, options_.width);
  norm_.forward(pass, weights, normed, hidden);
  TensorView const logits = pass.arena.allocate(Dtype::fp32, {chunks.logits, chunks.row});
  for_chunks(rows, chunks.logits, [&](std::int64_t begin, std::int64_t count) {
    score(pass, product, 0.0f,
          {begin,
           loss,
           to.losses.rows(begin, count),
           {},
           logits.rows(0, count),
           normed.rows(begin, count),
           targets.rows(begin, count),
           to.hits.empty() ? TensorView{} : to.hits.rows(begin, count)});
  });
}

void LmHead::train(PassContext const& pass, BackwardLeases const& leases,
                   Projection const& projection, float gradient_scale, Output const& to,
                   Input const& from) const {
  auto const& [hidden, targets, loss] = from;
  kernels::HeadScope const in_head;
  ArenaScope const scope(pass.arena);
  std::int64_t const rows = hidden.dim(0);
  auto const chunks = chunks_of(pass, rows);
  Projection const weights = in_pass_dtype(pass, projection);
  TensorView const normed = pass.allocate(rows, options_.width);
  TensorView const dnormed = pass.allocate_stream(rows, options_.width);
  Norm::Saved const saved = norm_.forward(pass, leases.weights, normed, hidden);
  TensorView const logits = pass.arena.allocate(Dtype::fp32, {chunks.logits, chunks.row});
  TensorView const dlogits =
      pass.dtype == Dtype::fp32 ? logits : pass.allocate(chunks.gradients, chunks.row);
  for_chunks(rows, chunks.gradients, [&](std::int64_t first, std::int64_t group) {
    for_chunks(group, chunks.logits, [&](std::int64_t at, std::int64_t count) {
      std::int64_t const begin = first + at;
      score(pass, weights, gradient_scale,
            {begin, loss, to.losses.rows(begin, count), dlogits.rows(at, count),
             logits.rows(0, count), normed.rows(begin, count), targets.rows(begin, count)});
    });
    TensorView const dpart = first_columns(dlogits.rows(0, group), options_.vocabulary);
    kernels::gemm(pass.compute, {.row_a = chunks.row}, dnormed.rows(first, group), dpart,
                  weights.weight);
    if (!projection.gradient.empty())
      kernels::gemm(pass.compute,
                    {.transpose_a = true,
                     .accumulate = projection.accumulate || first > 0,
                     .row_a = chunks.row},
                    projection.gradient, dpart, normed.rows(first, group));
    if (!projection.bias_gradient.empty())
      backward_bias(pass,
                    {projection.bias_gradient, first > 0 ? kernels::WriteMode::add : leases.mode()},
                    dlogits.rows(0, group));
  });
  norm_.backward(pass, leases, {to.dhidden}, dnormed, hidden, saved);
}

void LmHead::backward_bias(PassContext const& pass, kernels::GradientTarget const& to,
                           ConstTensorView dlogits) const {
  ArenaScope const scope(pass.arena);
  std::int64_t const row = dlogits.dim(1);
  TensorView const workspace =
      pass.allocate_fp32(kernels::bias_gradient_workspace(pass.compute, dlogits.dim(0), row));
  if (row == options_.vocabulary)
    return kernels::bias_gradient(pass.compute, to, dlogits, workspace);
  TensorView const sums = pass.allocate_fp32(row);  // with those of columns that do not count
  kernels::bias_gradient(pass.compute, {sums}, dlogits, workspace);
  TensorView const counted = sums.rows(0, options_.vocabulary);
  if (to.mode == kernels::WriteMode::add)
    kernels::add(pass.compute, to.view, counted);
  else
    kernels::cast(pass.compute, to.view, counted);
}

void LmHead::logits(PassContext const& pass, WeightLease const& weights,
                    Projection const& projection, TensorView out, ConstTensorView hidden) const {
  ArenaScope const scope(pass.arena);
  TensorView const normed = pass.allocate(hidden.dim(0), options_.width);
  norm_.forward(pass, weights, normed, hidden);
  Projection const product = in_pass_dtype(pass, projection);
  kernels::gemm(pass.compute, {.transpose_b = true}, out, normed, product.weight,
                {.bias = product.bias});
  if (options_.soft_cap > 0.0)
    kernels::cap_logits(pass.compute, out, static_cast<float>(options_.soft_cap));
}

}  // namespace tessera::model::detail
