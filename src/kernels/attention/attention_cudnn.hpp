#pragma once
/// Attention by cuDNN on a CUDA stream, in builds that have its frontend (TESSERA_CUDNN_FRONTEND).

#include <cstdint>
#include <string>

#include "attention/attention_device_call.hpp"
#include "tessera/memory/queue.hpp"

namespace cudnn_frontend::graph {
class Graph;
}

namespace tessera::kernels::detail {

/// What cuDNN does not compute about this call, as the object of "does not compute"; empty when it
/// computes it.
std::string why_not_cudnn(FlashCall const& call, CudnnDevice const& device);
/// Why cuDNN does not compute this configuration, as far as it is known without operands.
std::string why_not_cudnn(AttentionConfig const& config, ConstTensorView documents,
                          CudnnDevice const& device);
/// Why cuDNN does not write gradients to these places; empty when it does.
std::string why_not_cudnn(AttentionGradients const& gradients);

/// What the masks of a call need in device memory.
struct CudnnMasks {
  std::int64_t* key = nullptr;  ///< seed and offset of the dropout masks; only read with dropout
  void* documents = nullptr;    ///< see SetDocumentMask; only read with documents
};

/// Both add to the stream and return true, or return false when cuDNN has no plan for the shape
/// after all or no room for its workspace (logged once). The first call of a shape builds its plan
/// and, when that needs more than any before, allocates the workspace of the stream.
bool cudnn_attention(memory::Queue& q, FlashCall const& call, void* out, float* lse,
                     CudnnMasks const& masks);
bool cudnn_attention_backward(memory::Queue& q, FlashCall const& call,
                              AttentionGradients const& gradients, AttentionSaved const& saved,
                              CudnnMasks const& masks);

/// The bytes of the workspace of its backward pass, which is allocated with the first one: those of
/// its plans but for a few hundred, on data center Blackwell an upper bound.
std::int64_t cudnn_backward_workspace(AttentionConfig const& config, CudnnDevice const& device);

/// The workspace and, with documents, their mask.
std::int64_t cudnn_backward_bytes(AttentionConfig const& config, bool documents,
                                  CudnnDevice const& device);

/// The rows of a batch that one call of the backward pass computes, and of the forward pass with
/// documents: all, or equal parts, whose cudnn_backward_bytes() are at most 1 GiB where those of
/// one row are. With dropout all, because cuDNN's masks depend on the place in the batch.
AttentionConfig cudnn_backward_part(AttentionConfig config, bool documents,
                                    CudnnDevice const& device);

/// Whether cuDNN has plans for both passes of a call, with gradients that are laid out as the
/// operands. With dropout both passes must be its own: only it knows its masks.
bool cudnn_has_plans(FlashCall const& call);
/// Add a pass to an empty graph, which cuDNN then builds: for the device that computes, in tests
/// for a device that is only described.
void add_cudnn_forward(cudnn_frontend::graph::Graph& to, FlashCall const& call);
void add_cudnn_backward(cudnn_frontend::graph::Graph& to, FlashCall const& call,
                        AttentionGradients const& gradients);
/// Place of the seed and offset of the calls on a stream, two numbers in device memory; allocated
/// once per stream.
std::int64_t* cudnn_mask_key(void* stream);
/// Memory for the mask of documents of the calls on a stream. Null where the device has no room for
/// it, which is logged once.
void* cudnn_document_mask(void* stream, std::int64_t bytes);

/// "cuDNN 9.19.0" of the headers; empty when this build has none.
std::string cudnn_description();

}  // namespace tessera::kernels::detail
