#pragma once
/// A model family as the registry knows it.

#include <functional>
#include <string_view>
#include <utility>
#include <vector>

#include "decoder/description.hpp"
#include "families/fields.hpp"

namespace tessera::model::detail {

struct Family {
  std::string_view model_type;
  std::string_view architecture;  ///< Hugging Face's class with a language model head
  /// Text of a complete config.json with Hugging Face's defaults. Fields whose default depends on
  /// others are null.
  std::string_view default_config;
  /// Other spellings of fields: (alias, field), as in the config class's attribute_map.
  std::vector<std::pair<std::string_view, std::string_view>> aliases;
  /// @param config complete, aliases resolved
  /// @throws ConfigError naming a field that is missing, unsupported or contradictory
  DecoderDescription (*describe)(ConfigTree const& config);
};

/// Gemma and Gemma 2 as Hugging Face's GemmaForCausalLM and Gemma2ForCausalLM: Llama with scaled
/// embeddings and norms that add one to gamma; Gemma 2 with norms on both sides of the branches,
/// windows of every second layer and capped logits.
/// Gemma team, arXiv 2403.08295 and arXiv 2408.00118.
Family gemma_family();
Family gemma2_family();

/// GPT-2 as Hugging Face's GPT2LMHeadModel: names, shapes, initial weights and configuration of
/// modeling_gpt2.py.
/// Radford et al., "Language Models are Unsupervised Multitask Learners", 2019.
Family gpt2_family();

/// The fields that families derived from GPT-2 share: all but the activation and the layout of
/// projections.
DecoderDescription read_gpt2(Fields const& fields);

/// GPT-BigCode (SantaCoder, StarCoder) as Hugging Face's GPTBigCodeForCausalLM: GPT-2 with one key
/// and value head for all query heads.
/// Li et al., "StarCoder: may the source be with you!", arXiv 2305.06161.
Family gpt_bigcode_family();

/// GPT-NeoX (Pythia) as Hugging Face's GPTNeoXForCausalLM: both branches of a block in parallel,
/// queries, keys and values of a head next to each other, part of each head rotated.
/// Black et al., "GPT-NeoX-20B", arXiv 2204.06745.
Family gpt_neox_family();

/// OLMo 2 as Hugging Face's Olmo2ForCausalLM: Llama with norms after the branches, and of all
/// queries and all keys of a position. OLMo team, "2 OLMo 2 Furious", arXiv 2501.00656.
Family olmo2_family();

/// Phi (Phi-1, Phi-1.5, Phi-2) as Hugging Face's PhiForCausalLM: both branches of a block behind
/// one norm, a head with a bias. Phi-3 as Phi3ForCausalLM: Llama with fused projections. Li et al.,
/// "Textbooks Are All You Need II", arXiv 2309.05463; Abdin et al., arXiv 2404.14219.
Family phi_family();
Family phi3_family();

/// StarCoder2 as Hugging Face's Starcoder2ForCausalLM: Llama's attention with biases, layer
/// normalization and a perceptron without a gate.
/// Lozhkov et al., "StarCoder 2 and The Stack v2", arXiv 2402.19173.
Family starcoder2_family();

/// Llama as Hugging Face's LlamaForCausalLM, and the families that share its fields: Mistral with a
/// sliding window, Qwen2 with biases, Qwen3 with norms of queries and keys.
/// Touvron et al., "Llama 2", arXiv 2307.09288; Jiang et al., "Mistral 7B", arXiv 2310.06825.
Family llama_family();
Family mistral_family();
Family qwen2_family();
Family qwen3_family();

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
