#pragma once
/// Attention by cuDNN on a CUDA stream, in builds that have its frontend (TESSERA_CUDNN_FRONTEND).

#include <string>

#include "detail/attention_device_call.hpp"

namespace tessera::kernels::detail {

/// What cuDNN does not compute about this call, as the object of "does not compute"; empty when it
/// computes it.
std::string why_not_cudnn(FlashCall const& call);

/// Both add to the stream and return true, or return false when cuDNN has no plan for the shape
/// after all (said once in the log). The first call of a shape builds its plan and, when that needs
/// more than any before, allocates the workspace of the stream.
bool cudnn_attention(void* stream, FlashCall const& call, void* out, float* lse);
bool cudnn_attention_backward(void* stream, FlashCall const& call,
                              AttentionGradients const& gradients, AttentionSaved const& saved);

/// "cuDNN 9.19.0" of the headers; empty when this build has none.
std::string cudnn_description();

}  // namespace tessera::kernels::detail
