#include "detail/attention_launch.hpp"

#include "detail/attention_cudnn.hpp"
#include "detail/launch.hpp"
#include "tessera/kernels/device_settings.hpp"

namespace tessera::kernels::detail {
namespace {

bool wants_cudnn(Queue const& q, FlashCall const& call) {
  auto const wanted = device_settings().attention;
  if (!memory::on_cuda(q) || wanted == DeviceAttention::portable) return false;
  auto const why_not = why_not_cudnn(call);
  TESSERA_VALIDATE(why_not.empty() || wanted != DeviceAttention::cudnn, ConfigError,
                   "--device_attention cudnn: cuDNN does not compute ", why_not,
                   "; use --device_attention auto");
  return why_not.empty();
}

}  // namespace

void attention_on_device(Queue& q, Dtype dtype, AttentionShape const& shape, TensorView out,
                         TensorView lse, AttentionInput query, AttentionInput key,
                         AttentionInput value, Dropout const& drop) {
  FlashCall const call{dtype, shape, query, key, value, drop};
  if (wants_cudnn(q, call) && cudnn_attention(q.native_stream(), call, out.data(), lse.as<float>()))
    return;
  with_team_size(q, [&](auto threads) {
    constexpr int team = decltype(threads)::value;
    with_flash_width(shape.head_dim, [&](auto width) {
      flash_forward<decltype(width)::value, team>(
          call, out.data(), lse.as<float>(), [&](char const* name, auto const& rule) {
            parallel_teams<team>(q, name, rule.teams(), rule);
          });
    });
  });
}

void attention_backward_on_device(Queue& q, Dtype dtype, AttentionShape const& shape,
                                  AttentionGradients const& gradients, AttentionSaved const& saved,
                                  AttentionInput query, AttentionInput key, AttentionInput value,
                                  Dropout const& drop, float* delta) {
  FlashCall const call{dtype, shape, query, key, value, drop};
  if (wants_cudnn(q, call) && cudnn_attention_backward(q.native_stream(), call, gradients, saved))
    return;
  parallel_for(q, "tessera::kernels::attention_backward_delta",
               shape.batch * shape.heads * shape.sequence, flash_delta(call, saved, delta));
  with_team_size(q, [&](auto threads) {
    constexpr int team = decltype(threads)::value;
    with_flash_width(shape.head_dim, [&](auto width) {
      flash_backward<decltype(width)::value, team>(
          call, gradients, saved, delta, [&](char const* name, auto const& rule) {
            parallel_teams<team>(q, name, rule.teams(), rule);
          });
    });
  });
}

}  // namespace tessera::kernels::detail
