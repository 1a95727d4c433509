#pragma once
/// Makes the rules of attention_device.hpp from the operands of a call; `run(name, rule)` starts a
/// rule, whoever the teams are.

#include "attention/attention_backward_device.hpp"
#include "attention/attention_launch.hpp"

namespace tessera::kernels::detail {

inline FlashRows flash_rows(AttentionShape const& shape, Dtype dtype, ConstHeadsView const& x) {
  auto const pack = 4 * size_of(dtype);
  std::int64_t const head_stride = head_stride_of(x.head_stride, shape.head_dim);
  bool const vectorized = reinterpret_cast<std::uintptr_t>(x.base) % pack == 0 &&
                          x.row_stride % 4 == 0 && head_stride % 4 == 0;
  return {const_cast<void*>(x.base),
          x.row_stride,
          head_stride,
          shape.sequence,
          shape.head_dim,
          dtype,
          vectorized};
}
inline FlashRows packed_flash_rows(AttentionShape const& shape, Dtype dtype, void const* base) {
  return flash_rows(shape, dtype, {base, std::int64_t{shape.heads} * shape.head_dim});
}

struct FlashCall {
  AttentionConfig config;
  AttentionInput in;

  FlashRows rows(ConstHeadsView const& x) const {
    return flash_rows(config.shape, config.dtype, x);
  }
  FlashInput input() const {
    return {config.shape,
            rows(in.query),
            rows(in.key),
            rows(in.value),
            DropoutFactors(config.drop),
            in.documents.empty() ? nullptr : in.documents.as<std::int32_t>()};
  }
};

struct BackwardCall {
  FlashCall call;
  AttentionGradients to;
  AttentionSaved saved;
};

/// The call of @p count rows of the batch from @p first on; operands that are null stay null.
/// @pre no dropout
inline BackwardCall part_of_batch(BackwardCall const& all, std::int64_t first, std::int64_t count) {
  auto const& config = all.call.config;
  auto const& shape = config.shape;
  std::int64_t const position = first * shape.sequence, positions = count * shape.sequence,
                     row = std::int64_t{shape.heads} * shape.head_dim;
  BackwardCall out = all;
  out.call.config.shape.batch = count;
  auto const moved = [](void const* data, Dtype dtype, std::int64_t elements) {
    auto const* const first = static_cast<std::byte const*>(data);
    return first ? first + elements * static_cast<std::int64_t>(size_of(dtype)) : nullptr;
  };
  for (ConstHeadsView* const view : {&out.call.in.query, &out.call.in.key, &out.call.in.value})
    view->base = moved(view->base, config.dtype, position * view->row_stride);
  for (HeadsView* const view : {&out.to.query, &out.to.key, &out.to.value})
    view->base =
        const_cast<std::byte*>(moved(view->base, config.dtype, position * view->row_stride));
  for (ConstTensorView* const view : {&out.saved.dout, &out.saved.out})
    *view = ConstTensorView(moved(view->data(), config.dtype, position * row), config.dtype,
                            {positions * row});
  if (!all.call.in.documents.empty())
    out.call.in.documents = ConstTensorView(
        moved(all.call.in.documents.data(), Dtype::int32, position), Dtype::int32, {positions});
  out.saved.lse = ConstTensorView(moved(all.saved.lse.data(), Dtype::fp32, position * shape.heads),
                                  Dtype::fp32, {positions * shape.heads});
  return out;
}

template <int Width, int Threads, class Run>
void flash_forward(FlashCall const& call, void* out, float* lse, Run const& run) {
  using Rule = FlashForward<Width, Threads>;
  run("tessera::kernels::attention",
      Rule{call.input(), packed_flash_rows(call.config.shape, call.config.dtype, out), lse,
           Rule::tiles_of(call.config.shape.sequence)});
}

/// @p delta [B, heads, T] has been computed.
template <int Width, int Threads, class Run>
void flash_backward(FlashCall const& call, AttentionGradients const& gradients,
                    AttentionSaved const& saved, float const* delta, Run const& run) {
  using Queries = FlashQueryBackward<Width, Threads>;
  using Keys = FlashKeyBackward<Width, Threads>;
  FlashPair<Width, Threads> const pair{
      {call.input(), packed_flash_rows(call.config.shape, call.config.dtype, saved.dout.data()),
       saved.lse.as<float>(), delta}};
  std::int64_t const tiles = Queries::tiles_of(call.config.shape.sequence);
  run("tessera::kernels::attention_backward_queries",
      Queries{pair, call.rows(gradients.query), tiles});
  run("tessera::kernels::attention_backward_keys",
      Keys{pair, call.rows(gradients.key), call.rows(gradients.value), tiles});
}

inline FlashDelta flash_delta(FlashCall const& call, AttentionSaved const& saved, float* delta) {
  return {call.config.shape,
          packed_flash_rows(call.config.shape, call.config.dtype, saved.dout.data()),
          packed_flash_rows(call.config.shape, call.config.dtype, saved.out.data()), delta};
}

/// call(width) with the narrowest width that holds a head, as a compile-time constant.
template <class Call>
void with_flash_width(int head_dim, Call const& call) {
  if (head_dim <= 64) return call(std::integral_constant<int, 64>());
  if (head_dim <= 128) return call(std::integral_constant<int, 128>());
  call(std::integral_constant<int, 256>());
}

}  // namespace tessera::kernels::detail
