#pragma once
/// Llama as Hugging Face's LlamaForCausalLM, and the families that share its fields: Mistral with a
/// sliding window, Qwen2 with biases, Qwen3 with norms of queries and keys.
/// Touvron et al., "Llama 2", arXiv 2307.09288; Jiang et al., "Mistral 7B", arXiv 2310.06825.

#include <functional>

#include "families/family.hpp"
#include "families/rotary_fields.hpp"

namespace tessera::model::detail {

Family const& llama_family();
Family const& mistral_family();
Family const& qwen2_family();
Family const& qwen3_family();

/// Names of fields that differ between the families.
struct LlamaFields {
  std::string_view epsilon = "rms_norm_eps";
  std::string_view activation = "hidden_act";
  double rotated_part = 1.0;  ///< default of partial_rotary_factor
  RotaryFields::Names rotary_names = RotaryFields::Names::general;
};
/// The fields, names and parts that families derived from Llama share: root mean square norms
/// before the branches, rotary positions, grouped queries, a gated perceptron, no biases.
DecoderDescription read_llama(ConfigTree const& config, LlamaFields const& names = {});

/// Biases of all projections of attention, as `attention_bias` says.
void read_attention_bias(DecoderDescription& d, Fields const& fields);
/// `sliding_window` of all layers, where it is set.
void read_window(DecoderDescription& d, Fields const& fields);
/// `sliding_window` of the layers that `layer_types` names. Without `layer_types` of those for
/// which @p slides says so.
void read_layer_windows(DecoderDescription& d, ConfigTree const& config,
                        std::function<bool(int)> const& slides);

}  // namespace tessera::model::detail
