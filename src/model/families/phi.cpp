#include "families/family.hpp"

namespace tessera::model::detail {
namespace {

constexpr char phi_defaults[] = R"({
  "model_type": "phi", "attention_dropout": 0.0, "bos_token_id": 1, "embd_pdrop": 0.0,
  "eos_token_id": 2, "hidden_act": "gelu_new", "hidden_size": 2048, "initializer_range": 0.02,
  "intermediate_size": 8192, "layer_norm_eps": 1e-05, "max_position_embeddings": 2048,
  "num_attention_heads": 32, "num_hidden_layers": 24, "num_key_value_heads": null,
  "pad_token_id": null, "qk_layernorm": false, "resid_pdrop": 0.0,
  "rope_parameters": {"partial_rotary_factor": 0.5, "rope_theta": 10000.0, "rope_type": "default"},
  "tie_word_embeddings": false, "use_cache": true, "vocab_size": 51200
})";

constexpr char phi3_defaults[] = R"({
  "model_type": "phi3", "attention_dropout": 0.0, "bos_token_id": 1, "embd_pdrop": 0.0,
  "eos_token_id": 32000, "hidden_act": "silu", "hidden_size": 3072, "initializer_range": 0.02,
  "intermediate_size": 8192, "max_position_embeddings": 4096, "num_attention_heads": 32,
  "num_hidden_layers": 32, "num_key_value_heads": null, "original_max_position_embeddings": 4096,
  "pad_token_id": 32000, "resid_pdrop": 0.0, "rms_norm_eps": 1e-05,
  "rope_parameters": {"partial_rotary_factor": 1.0, "rope_theta": 10000.0, "rope_type": "default"},
  "sliding_window": null, "tie_word_embeddings": false, "use_cache": true, "vocab_size": 32064
})";

DecoderDescription describe_phi(ConfigTree const& config) {
  Fields const fields(config);
  fields.refuse("qk_layernorm", "layer normalization of queries and keys is not computed");
  DecoderDescription d = read_llama(config, {.epsilon = "layer_norm_eps", .rotated_part = 0.5});
  d.names.before_mlp = "";
  d.names.final_norm = "model.final_layernorm";
  d.names.head_bias = "lm_head.bias";
  d.norm.kind = NormKind::layer;
  d.residual = Residual::parallel;
  d.residual_dropout = fields.probability("resid_pdrop");
  d.embedding.dropout = fields.probability("embd_pdrop");
  d.attention.qkv.bias = d.attention.output_bias = d.mlp.bias = Bias::zeros;
  d.attention.output_name = "dense";
  d.mlp.kind = MlpKind::plain;
  d.mlp.expand_name = "fc1";
  d.mlp.project_name = "fc2";
  d.lora_targets = {"q_proj", "v_proj", "fc1", "fc2"};
  return d;
}

/// embd_pdrop has no effect in transformers either.
DecoderDescription describe_phi3(ConfigTree const& config) {
  Fields const fields(config);
  DecoderDescription d = read_llama(config, {.rotary_names = RotaryFields::Names::phi3});
  d.residual_dropout = fields.probability("resid_pdrop");
  d.attention.qkv.layout = QkvLayout::fused;
  d.attention.qkv.names = {"qkv_proj"};
  d.mlp.kind = MlpKind::gated_fused;
  d.mlp.expand_name = "gate_up_proj";
  read_window(d, fields);
  return d;
}

}  // namespace

Family phi_family() { return {"phi", "PhiForCausalLM", phi_defaults, {}, describe_phi}; }

Family phi3_family() { return {"phi3", "Phi3ForCausalLM", phi3_defaults, {}, describe_phi3}; }

}  // namespace tessera::model::detail
