#include "families/family.hpp"

#include <cmath>

#include "families/fields.hpp"

namespace tessera::model::detail {
namespace {

constexpr char gpt_neox_defaults[] = R"({
  "model_type": "gpt_neox", "attention_bias": true, "attention_dropout": 0.0, "bos_token_id": 0,
  "classifier_dropout": 0.1, "eos_token_id": 2, "hidden_act": "gelu", "hidden_dropout": 0.0,
  "hidden_size": 6144, "initializer_range": 0.02, "intermediate_size": 24576,
  "is_decoder": false, "layer_norm_eps": 1e-05, "max_position_embeddings": 2048,
  "num_attention_heads": 64, "num_hidden_layers": 44, "pad_token_id": null,
  "rope_parameters": {"partial_rotary_factor": 0.25, "rope_theta": 10000.0, "rope_type": "default"},
  "tie_word_embeddings": false, "use_cache": true, "use_parallel_residual": true,
  "vocab_size": 50432
})";

DecoderDescription describe_gpt_neox(ConfigTree const& config) {
  Fields const fields(config);
  DecoderDescription d;
  d.names = {.block = "gpt_neox.layers.{}",
             .attention = "attention",
             .mlp = "mlp",
             .before_attention = "input_layernorm",
             .before_mlp = "post_attention_layernorm",
             .final_norm = "gpt_neox.final_layer_norm",
             .head = "embed_out.weight"};
  std::int64_t const width = fields.positive("hidden_size");
  d.set_width(width).set_stddev(fields.deviation("initializer_range"));
  d.layers = fields.layers("num_hidden_layers");
  d.norm.epsilon = fields.epsilon("layer_norm_eps");
  d.tied = fields.flag("tie_word_embeddings");
  if (fields.flag("use_parallel_residual")) d.residual = Residual::parallel;
  d.residual_dropout = d.embedding.dropout = fields.probability("hidden_dropout");

  QkvOptions& qkv = d.attention.qkv;
  qkv.heads = qkv.kv_heads = fields.heads("num_attention_heads", "hidden_size");
  qkv.head_dim = static_cast<int>(width / qkv.heads);
  qkv.layout = QkvLayout::fused_per_head;
  qkv.weights = d.mlp.layout = WeightLayout::out_in;
  qkv.names = {"query_key_value"};
  qkv.bias = d.attention.output_bias = fields.flag("attention_bias") ? Bias::zeros : Bias::none;
  d.attention.scale = 1.0 / std::sqrt(static_cast<double>(qkv.head_dim));
  d.attention.dropout = fields.probability("attention_dropout");
  d.attention.output_name = "dense";
  d.rotary = read_rotary(config, {.head_dim = qkv.head_dim,
                                  .theta = "rotary_emb_base",
                                  .partial = "rotary_pct",
                                  .partial_default = 0.25});

  d.embedding.token_name = "gpt_neox.embed_in.weight";
  d.embedding.vocabulary = fields.positive("vocab_size");
  d.embedding.positions = max_positions(config, *d.rotary);
  d.positions_field = "max_position_embeddings";

  d.mlp.activation = fields.activation("hidden_act");
  d.mlp.inner = fields.positive("intermediate_size");
  d.mlp.expand_name = "dense_h_to_4h";
  d.mlp.project_name = "dense_4h_to_h";
  return d;
}

}  // namespace

Family gpt_neox_family() {
  return {"gpt_neox", "GPTNeoXForCausalLM", gpt_neox_defaults, {}, describe_gpt_neox};
}

}  // namespace tessera::model::detail
