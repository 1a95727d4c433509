#include "detail/attention_on_stream.hpp"

#include "detail/attention_flash_run.hpp"
#include "detail/launch.hpp"

namespace tessera::kernels::detail {

void attention_on_stream(Queue& q, Dtype dtype, AttentionShape const& shape, TensorView out, TensorView lse, AttentionInput query,
                         AttentionInput key, AttentionInput value, Dropout const& drop) {
  FlashCall const call{dtype, shape, query, key, value, drop};
  with_team_size(q, [&](auto threads) {
    constexpr int team = decltype(threads)::value;
    with_flash_width(shape.head_dim, [&](auto width) {
      flash_forward<decltype(width)::value, team>(call, out.data(), lse.as<float>(),
                                        [&](char const* name, auto const& rule) { parallel_teams<team>(q, name, rule.teams(), rule); });
    });
  });
}

void attention_backward_on_stream(Queue& q, Dtype dtype, AttentionShape const& shape, AttentionGradients const& gradients,
                                  AttentionSaved const& saved, AttentionInput query, AttentionInput key, AttentionInput value,
                                  Dropout const& drop, float* delta) {
  FlashCall const call{dtype, shape, query, key, value, drop};
  parallel_for(q, "tessera::kernels::attention_backward_delta", shape.batch * shape.heads * shape.sequence, flash_delta(call, saved, delta));
  with_team_size(q, [&](auto threads) {
    constexpr int team = decltype(threads)::value;
    with_flash_width(shape.head_dim, [&](auto width) {
      flash_backward<decltype(width)::value, team>(call, gradients, saved, delta,
                                         [&](char const* name, auto const& rule) { parallel_teams<team>(q, name, rule.teams(), rule); });
    });
  });
}

}  // namespace tessera::kernels::detail
