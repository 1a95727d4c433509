#include "families/family.hpp"

#include <cmath>

#include "tessera/core/error.hpp"

namespace tessera::model::detail {
namespace {

constexpr char default_config[] = R"({
  "architectures": ["GPT2LMHeadModel"], "model_type": "gpt2", "activation_function": "gelu_new",
  "add_cross_attention": false, "attn_pdrop": 0.1, "bos_token_id": 50256, "embd_pdrop": 0.1,
  "eos_token_id": 50256, "initializer_range": 0.02, "layer_norm_epsilon": 1e-5, "n_embd": 768,
  "n_head": 12, "n_inner": null, "n_layer": 12, "n_positions": 1024, "pad_token_id": null,
  "reorder_and_upcast_attn": false, "resid_pdrop": 0.1, "scale_attn_by_inverse_layer_idx": false,
  "scale_attn_weights": true, "summary_activation": null, "summary_first_dropout": 0.1,
  "summary_proj_to_labels": true, "summary_type": "cls_index", "summary_use_proj": true,
  "tie_word_embeddings": true, "use_cache": true, "vocab_size": 50257
})";

/// Refuses fields that would change the computed function in unsupported ways.
void refuse_unsupported(Fields const& fields, ConfigTree const& config) {
  std::string const activation = fields.text("activation_function");
  TESSERA_VALIDATE(
      activation == "gelu_new" || activation == "gelu_pytorch_tanh", ConfigError,
      "config.json: activation_function '", activation,
      "' is not supported for gpt2; supported are gelu_new and its other name gelu_pytorch_tanh");
  TESSERA_VALIDATE(!fields.flag("add_cross_attention"), ConfigError,
                   "config.json: add_cross_attention is true; a language model has no "
                   "encoder to attend to, set it to false");
  auto const* const pruned = config.find("pruned_heads");
  TESSERA_VALIDATE(!pruned || pruned->size() == 0, ConfigError, "config.json: pruned_heads ",
                   pruned->dump(), " is not supported; export the model with all its heads");
  // reorder_and_upcast_attn asks for scores and softmax in fp32, which is how attention is always
  // computed here
  fields.flag("reorder_and_upcast_attn");
}

DecoderDescription describe(ConfigTree const& config) {
  Fields const fields(config);
  refuse_unsupported(fields, config);
  DecoderDescription d = read_gpt2(fields);
  d.scale_by_inverse_layer = fields.flag("scale_attn_by_inverse_layer_idx");
  return d;
}

}  // namespace

DecoderDescription read_gpt2(Fields const& fields) {
  DecoderDescription d;
  d.names = {.block = "transformer.h.{}",
             .attention = "attn",
             .mlp = "mlp",
             .before_attention = "ln_1",
             .before_mlp = "ln_2",
             .final_norm = "transformer.ln_f",
             .head = "lm_head.weight"};
  std::int64_t const width = fields.positive("n_embd");
  int const heads = fields.heads("n_head", "n_embd");
  double const stddev = fields.deviation("initializer_range");
  d.set_width(width).set_stddev(stddev);
  d.layers = fields.layers("n_layer");
  d.norm.epsilon = fields.epsilon("layer_norm_epsilon");
  d.tied = fields.flag("tie_word_embeddings");
  d.residual_dropout = fields.probability("resid_pdrop");
  d.positions_field = "n_positions";

  d.embedding.token_name = "transformer.wte.weight";
  d.embedding.position_name = "transformer.wpe.weight";
  d.embedding.vocabulary = fields.positive("vocab_size");
  d.embedding.positions = fields.positive("n_positions");
  d.embedding.dropout = fields.probability("embd_pdrop");

  QkvOptions& qkv = d.attention.qkv;
  qkv.heads = qkv.kv_heads = heads;
  qkv.head_dim = static_cast<int>(width / heads);
  qkv.names = {"c_attn"};
  d.attention.scale =
      fields.flag("scale_attn_weights") ? 1.0 / std::sqrt(static_cast<double>(qkv.head_dim)) : 1.0;
  d.attention.dropout = fields.probability("attn_pdrop");
  d.attention.output_name = "c_proj";

  d.mlp.inner = fields.positive_or("n_inner", 4 * width);
  d.mlp.expand_name = "c_fc";
  d.mlp.project_name = "c_proj";
  d.attention.output_stddev = d.mlp.projection_stddev = stddev / std::sqrt(2.0 * d.layers);
  return d;
}

Family gpt2_family() {
  return {.model_type = "gpt2",
          .architecture = "GPT2LMHeadModel",
          .default_config = default_config,
          .aliases = {{"hidden_size", "n_embd"},
                      {"max_position_embeddings", "n_positions"},
                      {"num_attention_heads", "n_head"},
                      {"num_hidden_layers", "n_layer"}},
          .describe = describe};
}

}  // namespace tessera::model::detail
