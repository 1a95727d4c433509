#include "families/family.hpp"

#include <cmath>

#include "tessera/core/error.hpp"
namespace tessera::model::detail {
namespace {

constexpr char gemma_defaults[] = R"({
  "model_type": "gemma", "attention_bias": false, "attention_dropout": 0.0, "bos_token_id": 2,
  "eos_token_id": 1, "head_dim": 256, "hidden_act": "gelu_pytorch_tanh", "hidden_size": 3072,
  "initializer_range": 0.02, "intermediate_size": 24576, "max_position_embeddings": 8192,
  "num_attention_heads": 16, "num_hidden_layers": 28, "num_key_value_heads": 16,
  "pad_token_id": 0, "rms_norm_eps": 1e-06,
  "rope_parameters": {"rope_theta": 10000.0, "rope_type": "default"},
  "tie_word_embeddings": true, "use_bidirectional_attention": null, "use_cache": true,
  "vocab_size": 256000
})";

constexpr char gemma2_defaults[] = R"({
  "model_type": "gemma2", "attention_bias": false, "attention_dropout": 0.0,
  "attn_logit_softcapping": 50.0, "bos_token_id": 2, "eos_token_id": 1,
  "final_logit_softcapping": 30.0, "head_dim": 256, "hidden_activation": "gelu_pytorch_tanh",
  "hidden_size": 2304, "initializer_range": 0.02, "intermediate_size": 9216, "layer_types": null,
  "max_position_embeddings": 8192, "num_attention_heads": 8, "num_hidden_layers": 26,
  "num_key_value_heads": 4, "pad_token_id": 0, "query_pre_attn_scalar": 256,
  "rms_norm_eps": 1e-06, "rope_parameters": {"rope_theta": 10000.0, "rope_type": "default"},
  "sliding_window": 4096, "tie_word_embeddings": true, "use_bidirectional_attention": null,
  "use_cache": true, "vocab_size": 256000
})";

DecoderDescription read_gemma(ConfigTree const& config, LlamaFields const& names) {
  Fields const fields(config);
  fields.refuse("use_bidirectional_attention", "a causal language model sees earlier tokens only");
  DecoderDescription d = read_llama(config, names);
  read_attention_bias(d, fields);
  d.norm.gamma_offset = 1.0;
  d.norm.rounding = kernels::RmsNormRounding::after_gamma;
  d.embedding.scale = std::sqrt(static_cast<double>(d.embedding.width));
  return d;
}

/// The first files of Gemma say "gelu" and mean its tanh form, see GemmaConfig. hidden_activation
/// is the name that transformers 4 reads and 5 does not.
DecoderDescription describe_gemma(ConfigTree const& config) {
  Fields const fields(config);
  DecoderDescription d = read_gemma(config, {});
  if (fields.text("hidden_act") == "gelu") d.mlp.activation = kernels::Activation::gelu_new;
  TESSERA_VALIDATE(!fields.is_set("hidden_activation") ||
                       fields.activation("hidden_activation") == d.mlp.activation,
                   ConfigError, "config.json: hidden_activation is ",
                   config.at("hidden_activation").dump(), " and hidden_act ",
                   config.at("hidden_act").dump(),
                   ", which versions of transformers read differently; remove one of them");
  return d;
}

double cap_of(Fields const& fields, std::string_view key) {
  return fields.is_set(key) ? fields.positive_real(key) : 0.0;
}

DecoderDescription describe_gemma2(ConfigTree const& config) {
  Fields const fields(config);
  DecoderDescription d = read_gemma(config, {.activation = "hidden_activation"});
  d.names.after_attention = "post_attention_layernorm";
  d.names.before_mlp = "pre_feedforward_layernorm";
  d.names.after_mlp = "post_feedforward_layernorm";
  d.attention.scale = 1.0 / std::sqrt(fields.positive_real("query_pre_attn_scalar"));
  d.attention.mask.soft_cap = static_cast<float>(cap_of(fields, "attn_logit_softcapping"));
  d.logit_cap = cap_of(fields, "final_logit_softcapping");
  read_layer_windows(d, config, [](int layer) { return layer % 2 == 0; });
  return d;
}

}  // namespace

Family gemma_family() { return {"gemma", "GemmaForCausalLM", gemma_defaults, {}, describe_gemma}; }

Family gemma2_family() {
  return {"gemma2", "Gemma2ForCausalLM", gemma2_defaults, {}, describe_gemma2};
}

}  // namespace tessera::model::detail
