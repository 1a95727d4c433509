#pragma once
/// What a decoder is made of. A model family reads one from a config.json; make_decoder() builds
/// the layers.

#include <cstdint>
#include <optional>
#include <string>
#include <vector>

#include "decoder/block.hpp"
#include "layers/attention.hpp"
#include "layers/embedding.hpp"
#include "layers/mlp.hpp"
#include "layers/norm.hpp"
#include "tessera/kernels/attention/rotary_tables.hpp"
#include "tessera/model/layers/documents.hpp"
#include "tessera/model/layers/lora.hpp"

namespace tessera::model::detail {

/// Hugging Face's parameter names. An empty name: the model has no such part.
struct DecoderNames {
  std::string block{};      ///< with {} for the layer: "transformer.h.{}"
  std::string attention{};  ///< below the block, as the following
  std::string mlp{};
  std::string before_attention{}, after_attention{}, before_mlp{}, after_mlp{};  ///< norms
  std::string final_norm{};
  std::string head{};  ///< "lm_head.weight"; a tied head adds it to the token embedding's aliases
  std::string head_bias{};
};

struct DecoderDescription {
  DecoderNames names;
  int layers = 0;
  EmbeddingOptions embedding;
  AttentionOptions attention;           ///< attention of layer 0
  bool scale_by_inverse_layer = false;  ///< layer l divides the attention's scale by l + 1
  /// Windows of each layer's attention, 0: none; empty: no windows
  std::vector<std::int64_t> windows;
  /// Set for a model that rotates queries and keys; `attention` has the rotated dimensions.
  std::optional<kernels::RotaryOptions> rotary;
  MlpOptions mlp;
  NormOptions norm;
  Residual residual = Residual::sequential;
  double residual_dropout = 0.0;
  double label_smoothing = 0.0;           ///< label smoothing of the loss
  bool dynamic_loss = false;              ///< token losses times their probability
  double logit_cap = 0.0;                 ///< logit cap of the head; 0: off
  bool tied = true;                       ///< the head's weights are those of the token embedding
  double head_stddev = 0.02;              ///< initial weights of a head that is not tied
  std::string positions_field;            ///< field of config.json: the most tokens in a row
  std::optional<LoraOptions> lora;        ///< adapters; all other parameters are frozen
  std::vector<std::string> lora_targets;  ///< PEFT's; empty: fused projection, or query and value
  std::string frozen;                     ///< pattern of parameters that do not train
  DocumentOptions documents;              ///< documents of packed rows
  std::int64_t head_outputs = 0;  ///< outputs of a head of the caller's own; 0: the vocabulary
  std::string replaced_head;      ///< the name of the family's head that it replaces

  /// Sets the width of all parts.
  DecoderDescription& set_width(std::int64_t width) {
    embedding.width = attention.qkv.width = mlp.width = norm.width = width;
    return *this;
  }
  /// Sets the initial weights of all matrices.
  DecoderDescription& set_stddev(double stddev) {
    embedding.stddev = attention.qkv.stddev = attention.output_stddev = stddev;
    mlp.stddev = mlp.projection_stddev = head_stddev = stddev;
    return *this;
  }
};

}  // namespace tessera::model::detail
