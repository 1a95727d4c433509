#include "families/family.hpp"

namespace tessera::model::detail {
namespace {

constexpr char olmo2_defaults[] = R"({
  "model_type": "olmo2", "attention_bias": false, "attention_dropout": 0.0, "bos_token_id": null,
  "eos_token_id": 50279, "hidden_act": "silu", "hidden_size": 4096, "initializer_range": 0.02,
  "intermediate_size": 11008, "max_position_embeddings": 2048, "num_attention_heads": 32,
  "num_hidden_layers": 32, "num_key_value_heads": null, "pad_token_id": 1, "rms_norm_eps": 1e-05,
  "rope_parameters": {"rope_theta": 10000.0, "rope_type": "default"},
  "tie_word_embeddings": false, "use_cache": true, "vocab_size": 50304
})";

DecoderDescription describe_olmo2(ConfigTree const& config) {
  DecoderDescription d = read_llama(config);
  read_attention_bias(d, Fields(config));
  d.names.before_attention = d.names.before_mlp = "";
  d.names.after_attention = "post_attention_layernorm";
  d.names.after_mlp = "post_feedforward_layernorm";
  d.norm.rounding = kernels::RmsNormRounding::after_gamma;
  d.attention.head_norms = HeadNormScope::all_heads;
  d.attention.head_norm = d.norm;
  d.attention.query_norm_name = "q_norm";
  d.attention.key_norm_name = "k_norm";
  return d;
}

}  // namespace

Family olmo2_family() { return {"olmo2", "Olmo2ForCausalLM", olmo2_defaults, {}, describe_olmo2}; }

}  // namespace tessera::model::detail
