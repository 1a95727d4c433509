#include "layers/lm_head.hpp"

#include <algorithm>

#include "tessera/core/rounding.hpp"
#include "tessera/kernels/elementwise/activation.hpp"
#include "tessera/kernels/elementwise/elementwise.hpp"
#include "tessera/kernels/gemm/gemm.hpp"
#include "tessera/kernels/launch/kernel_times.hpp"

namespace tessera::model::detail {
namespace {

/// Calls @p body(begin, count) for consecutive chunks of @p rows.
template <class Body>
void for_chunks(std::int64_t rows, std::int64_t chunk, Body&& body) {
  for (std::int64_t begin = 0; begin < rows; begin += chunk)
    body(begin, std::min(chunk, rows - begin));
}

/// Rows of equal chunks of at most @p most_rows, or of one row.
std::int64_t equal_chunks(std::int64_t rows, std::int64_t most_rows) {
  most_rows = std::max<std::int64_t>(1, most_rows);
  std::int64_t const chunks = std::max<std::int64_t>(1, ceil_divide(rows, most_rows));
  return ceil_divide(rows, chunks);
}

/// The columns that count of a matrix whose rows are longer.
TensorView first_columns(TensorView const& rows, std::int64_t columns) {
  return {rows.data(), rows.dtype(), {rows.dim(0), columns}};
}

/// Rows of a list that may be empty.
TensorView part_of(TensorView const& all, std::int64_t first, std::int64_t count) {
  return all.empty() ? TensorView{} : all.rows(first, count);
}

/// fp16 ends at 65504, and a loss of the caller's own gets fp32.
Dtype logits_dtype(PassContext const& pass, LogitLoss const* loss) {
  return pass.dtype == Dtype::bf16 && !loss ? Dtype::bf16 : Dtype::fp32;
}

/// The operands of products whose results are logits of dtype @p logits.
LmHead::Projection in_pass_dtype(PassContext const& pass, LmHead::Projection projection,
                                 Dtype logits) {
  projection.weight = pass.in_dtype(pass.dtype, projection.weight);
  projection.bias = pass.rounded(logits, projection.bias);
  return projection;
}

}  // namespace

void LmHead::own_projection(UnitSpec& unit, std::string const& name, double stddev) {
  projection_ = marked_for_products(
      unit, add_parameter(unit, name, {options_.vocabulary, options_.width}, normal(stddev)));
}

void LmHead::own_bias(UnitSpec& unit, std::string const& name) {
  bias_ = marked_for_products(unit,
                              add_undecayed_parameter(unit, name, {options_.vocabulary}, zeros()));
}

LmHead::Chunks LmHead::Chunks::of(std::int64_t rows, std::int64_t vocabulary, Dtype dtype,
                                  memory::MemorySpace space, std::optional<std::int64_t> most) {
  constexpr std::int64_t mib = std::int64_t{1} << 20;
  bool const on_device = space == memory::MemorySpace::device;
  std::int64_t const row = on_device || dtype != Dtype::fp32 ? (vocabulary + 63) / 64 * 64
                                                             : vocabulary,
                     element = static_cast<std::int64_t>(size_of(dtype)),
                     bytes = most.value_or(!on_device             ? 64 * mib
                                           : dtype == Dtype::fp32 ? 512 * mib
                                                                  : 1024 * mib);
  return {equal_chunks(rows, bytes / (element * row)), row};
}

LmHead::Chunks LmHead::Chunks::with_fp32_logits() const {
  return {equal_chunks(rows, (rows - 1) / 3), row};  // one less for the alignment of two buffers
}

LmHead::Buffers LmHead::allocate(PassContext const& pass, std::int64_t rows,
                                 LogitLoss const* loss) const {
  Chunks chunks = Chunks::of(rows, options_.vocabulary, pass.dtype,
                             memory::memory_space_of(pass.compute), options_.chunk_bytes);
  if (logits_dtype(pass, loss) == pass.dtype) {
    TensorView const both = pass.allocate(chunks.rows, chunks.row);
    return {chunks, both, both};
  }
  chunks = chunks.with_fp32_logits();
  return {chunks, pass.arena.allocate(Dtype::fp32, {chunks.rows, chunks.row}),
          pass.allocate(chunks.rows, chunks.row)};
}

LmHead::Chunk LmHead::chunk_of(Output const& to, Input const& from, Buffers const& buffers,
                               ConstTensorView normed, std::int64_t first, std::int64_t count) {
  return {first,
          from.loss,
          to.losses.rows(first, count),
          {},
          buffers.logits.rows(0, count),
          normed.rows(first, count),
          from.targets.rows(first, count),
          part_of(to.hits, first, count),
          part_of(to.entropy, first, count),
          part_of(to.means, first, count)};
}

void LmHead::project(PassContext const& pass, Projection const& projection,
                     Chunk const& chunk) const {
  kernels::gemm(pass.compute, {.transpose_b = true, .row_c = chunk.logits.dim(1)},
                first_columns(chunk.logits, options_.vocabulary), chunk.normed, projection.weight,
                {.bias = projection.bias});
}

kernels::CrossEntropyOptions LmHead::loss_options(float gradient_scale) const {
  return {.gradient_scale = gradient_scale,
          .vocabulary = options_.vocabulary,
          .soft_cap = static_cast<float>(options_.soft_cap),
          .label_smoothing = static_cast<float>(options_.label_smoothing),
          .dynamic = options_.dynamic_loss};
}

void LmHead::weigh_sequences(PassContext const& pass, std::vector<float> const& factors,
                             float gradient_scale, Chunk const& chunk) const {
  std::int64_t const count = chunk.losses.numel();
  for (std::int64_t begin = 0, end = 0; begin < count; begin = end) {
    std::int64_t const sequence = (chunk.first + begin) / pass.sequence;
    end = std::min(count, (sequence + 1) * pass.sequence - chunk.first);
    float const factor = factors[static_cast<std::size_t>(sequence)];
    kernels::cross_entropy(
        pass.compute, loss_options(gradient_scale * factor), chunk.losses.rows(begin, end - begin),
        chunk.dlogits.rows(begin, end - begin), chunk.logits.rows(begin, end - begin),
        chunk.targets.rows(begin, end - begin));
  }
}

void LmHead::score(PassContext const& pass, Projection const& projection, float gradient_scale,
                   Chunk const& chunk) const {
  project(pass, projection, chunk);
  // a soft cap changes no order
  if (!chunk.hits.empty())
    kernels::top1_hits(pass.compute, chunk.hits, chunk.logits, chunk.targets, options_.vocabulary);
  auto const options = loss_options(gradient_scale);
  if (!chunk.entropy.empty())
    kernels::token_entropy(pass.compute, options, chunk.entropy, chunk.means, chunk.logits,
                           chunk.targets);
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
  kernels::cross_entropy(pass.compute, options, chunk.losses, chunk.dlogits, chunk.logits,
                         chunk.targets);
}

void LmHead::losses(PassContext const& pass, WeightLease const& weights,
                    Projection const& projection, Output const& to, Input const& from) const {
  kernels::HeadScope const in_head;
  ArenaScope const scope(pass.arena);
  std::int64_t const rows = from.hidden.dim(0);
  Projection const product = in_pass_dtype(pass, projection, logits_dtype(pass, from.loss));
  TensorView const normed = pass.allocate(rows, options_.width);
  norm_.forward(pass, weights, normed, from.hidden);
  score_chunks(pass, product, allocate(pass, rows, from.loss), to, from, normed);
}

void LmHead::score_chunks(PassContext const& pass, Projection const& projection,
                          Buffers const& buffers, Output const& to, Input const& from,
                          ConstTensorView normed) const {
  for_chunks(normed.dim(0), buffers.chunks.rows, [&](std::int64_t first, std::int64_t count) {
    score(pass, projection, 0.0f, chunk_of(to, from, buffers, normed, first, count));
  });
}

void LmHead::train(PassContext const& pass, BackwardLeases const& leases,
                   Projection const& projection, float gradient_scale, Output const& to,
                   Input const& from) const {
  ConstTensorView const hidden = from.hidden;
  kernels::HeadScope const in_head;
  ArenaScope const scope(pass.arena);
  std::int64_t const rows = hidden.dim(0);
  Projection const weights = in_pass_dtype(pass, projection, logits_dtype(pass, from.loss));
  TensorView const normed = pass.allocate(rows, options_.width);
  TensorView const dnormed = pass.allocate_stream(rows, options_.width);
  Norm::Saved const saved = norm_.forward(pass, leases.weights, normed, hidden);
  auto const buffers = allocate(pass, rows, from.loss);
  std::int64_t const row = buffers.chunks.row;
  std::vector<float> factors;
  if (from.factors) {
    score_chunks(pass, weights, buffers, to, from, normed);
    factors = from.factors();
  }
  for_chunks(rows, buffers.chunks.rows, [&](std::int64_t first, std::int64_t count) {
    TensorView const dlogits = buffers.dlogits.rows(0, count);
    Chunk chunk = chunk_of(to, from, buffers, normed, first, count);
    chunk.dlogits = dlogits;
    if (from.factors) {
      if (rows > buffers.chunks.rows) project(pass, weights, chunk);  // else they are still there
      weigh_sequences(pass, factors, gradient_scale, chunk);
    } else {
      score(pass, weights, gradient_scale, chunk);
    }
    TensorView const dpart = first_columns(dlogits, options_.vocabulary);
    kernels::gemm(pass.compute, {.row_a = row}, dnormed.rows(first, count), dpart, weights.weight);
    if (!projection.gradient.empty())
      kernels::gemm(
          pass.compute,
          {.transpose_a = true, .accumulate = projection.accumulate || first > 0, .row_a = row},
          projection.gradient, dpart, normed.rows(first, count));
    if (!projection.bias_gradient.empty())
      backward_bias(pass,
                    {projection.bias_gradient, first > 0 ? kernels::WriteMode::add : leases.mode()},
                    dlogits);
  });
  norm_.backward(pass, leases, {{to.dhidden}}, dnormed, hidden, saved);
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
  Projection const product = in_pass_dtype(pass, projection, out.dtype());
  kernels::gemm(pass.compute, {.transpose_b = true}, out, normed, product.weight,
                {.bias = product.bias});
  if (options_.soft_cap > 0.0)
    kernels::cap_logits(pass.compute, out, static_cast<float>(options_.soft_cap));
}

}  // namespace tessera::model::detail
