#pragma once
/// Starts attention on a device: cuDNN's or the portable kernel (attention_device.hpp). The
/// portable kernel also runs on host queues, slower than the host's own tiles.

#include <string>

#include "tessera/kernels/attention/attention.hpp"
#include "tessera/kernels/launch/device_settings.hpp"

namespace tessera::kernels::detail {

enum class AttentionLibrary { portable, cudnn };
/// The library for a call on a GPU. @p refusal: why cuDNN cannot compute it, empty when it can.
/// @throws ConfigError when @p wanted is cudnn and cuDNN cannot compute the call
AttentionLibrary choose_attention(DeviceAttention wanted, std::string const& refusal);

/// Why cuDNN cannot compute a dropout of @p p, of which @p wrong has been found; empty when nothing
/// has.
std::string refusal_of_masks(float p, std::string const& wrong);

void attention_on_device(Queue& q, AttentionConfig const& config, AttentionOutput const& to,
                         AttentionInput const& from);
/// @p delta [B, heads, T] fp32, overwritten.
void attention_backward_on_device(Queue& q, AttentionConfig const& config,
                                  AttentionGradients const& to, AttentionInput const& from,
                                  AttentionSaved const& saved, float* delta);

}  // namespace tessera::kernels::detail
