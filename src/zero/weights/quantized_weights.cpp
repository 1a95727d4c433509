#include "weights/quantized_weights.hpp"

#include <algorithm>
#include <cstring>
#include <utility>

#include "tessera/core/error.hpp"
#include "tessera/core/rounding.hpp"
#include "tessera/memory/buffer.hpp"
#include "tessera/memory/device.hpp"
#include "tessera/zero/weights/base_values.hpp"

namespace tessera::zero::detail {
namespace {

kernels::WeightCodes codes_of(memory::ParameterSpec const& matrix, QuantizedBase const& base) {
  using enum kernels::WeightFormat;
  std::size_t const out = base.transposed ? 1 : 0;
  return {.format = base.is_int8            ? int8
                    : base.double_quantized ? nf4_double
                                            : nf4,
          .rows = matrix.shape[out],
          .columns = matrix.shape[1 - out],
          .transposed = base.transposed};
}

std::vector<std::vector<kernels::WeightCodes>> codes_of(ParameterSubset const& matrices,
                                                        QuantizedBase const& base) {
  std::vector<std::vector<kernels::WeightCodes>> out;
  for (auto const& unit : matrices.units) {
    auto& codes = out.emplace_back();
    for (auto const& matrix : unit.parameters) codes.push_back(codes_of(matrix, base));
  }
  return out;
}

/// The codes as parameters.
std::vector<memory::UnitSpec> units_of(
    ParameterSubset const& matrices, std::vector<std::vector<kernels::WeightCodes>> const& codes) {
  auto out = matrices.units;
  for (std::size_t u = 0; u < out.size(); ++u)
    for (std::size_t p = 0; p < codes[u].size(); ++p)
      out[u].parameters[p].shape = {codes[u][p].bytes()};
  return out;
}

/// A store of bytes: limits of elements become limits of bytes.
EngineConfig for_bytes(EngineConfig config, ParameterSubset const& matrices,
                       std::vector<std::vector<kernels::WeightCodes>> const& codes) {
  config.dtype = Dtype::uint8;
  auto* const weights = edit<ShardedWeights>(config);
  if (!weights) return config;
  double bytes = 0.0, elements = 0.0;
  for (std::size_t u = 0; u < codes.size(); ++u)
    for (std::size_t p = 0; p < codes[u].size(); ++p) {
      bytes += static_cast<double>(codes[u][p].bytes());
      elements += static_cast<double>(matrices.units[u].parameters[p].numel());
    }
  auto const scale = [&](std::int64_t& limit) {
    limit = static_cast<std::int64_t>(bytes / elements * static_cast<double>(limit));
  };
  weights->quantized_weight_bits = 0;
  scale(weights->prefetch_bucket_size);
  scale(weights->max_live_parameters);
  if (weights->weight_swap) scale(weights->weight_swap->memory_numel);
  return config;
}

constexpr std::int64_t alignment = PartitionPlan::default_alignment;

std::int64_t values_of(std::vector<kernels::WeightCodes> const& matrices) {
  std::int64_t sum = 0;
  for (auto const& matrix : matrices) sum += round_up(matrix.numel(), alignment);
  return sum;
}

}  // namespace

QuantizedWeights::QuantizedWeights(EngineConfig const& config, ParameterSubset matrices,
                                   Codes codes, StageRules const& rules, StoreContext const& like)
    : FrozenPart(matrices, PartitionPlan(units_of(matrices, codes), like.plan.ranks()),
                 for_bytes(config, matrices, codes), rules, like),
      codes_(std::move(codes)),
      values_("matrices of codes", config.quantized_base->compute_dtype, like.comm) {}

QuantizedWeights::QuantizedWeights(EngineConfig const& config,
                                   std::vector<memory::UnitSpec> const& units,
                                   StageRules const& rules, StoreContext const& like)
    : QuantizedWeights(config, quantized_parameters(units),
                       codes_of(quantized_parameters(units), *config.quantized_base), rules, like) {
}

void QuantizedWeights::set_prefetch_order(std::vector<UnitIndex> acquisitions) {
  FrozenPart::set_prefetch_order(std::move(acquisitions));
  values_.delay_free(context_.compute.record());
}

memory::WeightLease QuantizedWeights::acquire(UnitIndex unit, memory::Queue& compute) {
  auto const codes = store_->acquire(unit, compute);
  auto const& matrices = codes_[position(unit)];
  auto const buffer = values_.take(values_of(matrices));
  compute.wait(buffer.ready);
  std::vector<memory::ConstTensorView> views;
  std::int64_t next = 0;
  for (std::size_t p = 0; p < matrices.size(); ++p) {
    auto const& shape = subset_.units[position(unit)].parameters[p].shape;
    std::int64_t const numel = matrices[p].numel();
    auto const view = buffer.data.rows(next, numel).reshape({shape[0], shape[1]});
    kernels::decode_weights(compute, view, codes[p], matrices[p]);
    views.emplace_back(view);
    next += round_up(numel, alignment);
  }
  return {std::move(views),
          [this, buffer, &compute] { values_.give_back(buffer, compute.record()); }};
}

void QuantizedWeights::store(UnitIndex unit, std::size_t parameter, std::uint8_t const* codes) {
  auto const& layout = plan_.unit(unit);
  if (layout.shard_numel == 0) return;
  auto const shard = shard_of(context_, *store_, unit);
  std::int64_t const start = layout.unit_offset(context_.ownership.rank, ShardOffset(0)).value(),
                     first = layout.parameters[parameter].offset.value(),
                     begin = std::max(start, first),
                     end = std::min(start + layout.shard_numel,
                                    first + layout.parameters[parameter].numel);
  if (begin >= end) return;
  auto* const to = static_cast<std::byte*>(shard.data()) + (begin - start);
  auto const bytes = static_cast<std::size_t>(end - begin);
  if (!memory::on_device(to)) {
    std::memcpy(to, codes + (begin - first), bytes);
    return;
  }
  memory::copy(context_.compute, to, codes + (begin - first), bytes);
  context_.compute.record().wait("weights that are quantized", compute_deadline);
}

void QuantizedWeights::fill(WeightFill const& fill) {
  store_->prepare_update();
  store_->finish_transfers();
  context_.compute.record().wait("weights that are quantized", compute_deadline);
  std::int64_t values_numel = 0, code_bytes = 0;
  for (auto const& unit : codes_)
    for (auto const& matrix : unit) {
      values_numel = std::max(values_numel, matrix.numel());
      code_bytes = std::max(code_bytes, matrix.bytes());
    }
  memory::Buffer const values("weights that are quantized", memory::Purpose::workspace,
                              static_cast<std::size_t>(values_numel) * sizeof(float)),
      codes("weights that are quantized", memory::Purpose::workspace,
            static_cast<std::size_t>(code_bytes));
  auto* const numbers = static_cast<float*>(values.data());
  auto* const bytes = static_cast<std::uint8_t*>(codes.data());
  Dtype const dtype = context_.config.quantized_base->stored_dtype;
  for (UnitIndex u = first_unit; u < plan_.end_unit(); ++u)
    for (std::size_t p = 0; p < codes_[position(u)].size(); ++p) {
      auto const& matrix = codes_[position(u)][p];
      fill(u, static_cast<int>(in_model(u)[p]), 0, matrix.numel(), numbers);
      round_values(dtype, numbers, matrix.numel());
      kernels::encode_weights(matrix, numbers, bytes);
      store(u, p, bytes);
    }
}

std::vector<float> QuantizedWeights::shard(UnitIndex) const {
  throw InternalError("values of weights that are kept as codes");
}

WeightReport QuantizedWeights::report() const {
  auto out = store_->report();
  out.buffer_bytes += values_.bytes();
  return out;
}

}  // namespace tessera::zero::detail

namespace tessera::zero {

void round_values(Dtype dtype, float* values, std::int64_t numel) {
  if (dtype == Dtype::fp32) return;
  for (std::int64_t i = 0; i < numel; ++i)
    values[i] = dtype == Dtype::bf16 ? static_cast<float>(bfloat16(values[i]))
                                     : static_cast<float>(float16(values[i]));
}

void quantize_values(memory::ParameterSpec const& matrix, QuantizedBase const& base,
                     float* values) {
  auto const format = detail::codes_of(matrix, base);
  auto const queue = memory::make_inline_queue("codes");
  std::vector<std::uint8_t> codes(static_cast<std::size_t>(format.bytes()));
  round_values(base.stored_dtype, values, matrix.numel());
  kernels::encode_weights(format, values, codes.data());
  kernels::decode_weights(*queue, {values, Dtype::fp32, {matrix.numel()}},
                          {codes.data(), Dtype::uint8, {format.bytes()}}, format);
}

}  // namespace tessera::zero
