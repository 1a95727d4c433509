#include "detail/attention_launch.hpp"

#include <mutex>
#include <set>

#include "detail/attention_cudnn.hpp"
#include "detail/attention_decode_device.hpp"
#include "detail/launch.hpp"
#include "detail/note_route.hpp"
#include "detail/timed.hpp"
#include "tessera/core/log.hpp"

namespace tessera::kernels::detail {
namespace {

/// In the log, which reason keeps cuDNN from computing.
void say_once(std::string const& refusal) {
  static std::mutex mutex;
  static std::set<std::string> said;
  std::lock_guard const lock(mutex);
  if (said.insert(refusal).second)
    log::info(concat("cuDNN does not compute attention of ", refusal,
                     "; the portable kernel computes it"));
}

bool uses_cudnn(Queue const& q, FlashCall const& call) {
  if (!memory::on_cuda(q)) return false;
  std::string const refusal = why_not_cudnn(call);
  DeviceAttention const wanted = device_settings().attention;
  if (choose_attention(wanted, refusal) == AttentionLibrary::cudnn) return true;
  if (wanted == DeviceAttention::automatic && !cudnn_description().empty()) say_once(refusal);
  return false;
}

}  // namespace

AttentionLibrary choose_attention(DeviceAttention wanted, std::string const& refusal) {
  if (wanted == DeviceAttention::portable) return AttentionLibrary::portable;
  TESSERA_VALIDATE(refusal.empty() || wanted != DeviceAttention::cudnn, ConfigError,
                   "--device_attention cudnn: cuDNN does not compute ", refusal,
                   "; use --device_attention auto");
  return refusal.empty() ? AttentionLibrary::cudnn : AttentionLibrary::portable;
}

void attention_on_device(Queue& q, AttentionConfig const& config, AttentionOutput const& to,
                         AttentionInput const& from) {
  FlashCall const call{config, from};
  Timed const timed(q, "tessera::kernels::attention");
  float* const lse = to.lse.as<float>();
  if (uses_cudnn(q, call) && cudnn_attention(q.native_stream(), call, to.out.data(), lse))
    return note_route("attention", "cuDNN");
  note_route("attention", "portable kernel");
  with_team_size(q, [&](auto threads) {
    constexpr int team = decltype(threads)::value;
    with_flash_width(config.shape.head_dim, [&](auto width) {
      flash_forward<decltype(width)::value, team>(
          call, to.out.data(), lse, [&](char const* name, auto const& rule) {
            parallel_teams<team>(q, name, rule.teams(), rule);
          });
    });
  });
}

void attention_backward_on_device(Queue& q, AttentionConfig const& config,
                                  AttentionGradients const& to, AttentionInput const& from,
                                  AttentionSaved const& saved, float* delta) {
  FlashCall const call{config, from};
  AttentionShape const& shape = config.shape;
  Timed const timed(q, "tessera::kernels::attention_backward");
  if (uses_cudnn(q, call) && cudnn_attention_backward(q.native_stream(), call, to, saved))
    return note_route("attention backward", "cuDNN");
  note_route("attention backward", "portable kernel");
  parallel_for(q, "tessera::kernels::attention_backward_delta",
               shape.batch * shape.heads * shape.sequence, flash_delta(call, saved, delta));
  with_team_size(q, [&](auto threads) {
    constexpr int team = decltype(threads)::value;
    with_flash_width(shape.head_dim, [&](auto width) {
      flash_backward<decltype(width)::value, team>(
          call, to, saved, delta, [&](char const* name, auto const& rule) {
            parallel_teams<team>(q, name, rule.teams(), rule);
          });
    });
  });
}

template <class T>
void decode_on_device(Queue& q, DecodeCall<T> const& call) {
  with_team_size(q, [&](auto threads) {
    constexpr int team = decltype(threads)::value;
    TeamDecode<T, team> const rule{call};
    parallel_teams<team>(q, "tessera::kernels::attention_decode", rule.teams(), rule);
  });
}
template void decode_on_device(Queue&, DecodeCall<float> const&);
template void decode_on_device(Queue&, DecodeCall<float16> const&);
template void decode_on_device(Queue&, DecodeCall<bfloat16> const&);

}  // namespace tessera::kernels::detail
