#include "families/family.hpp"

#include <cmath>

#include "families/fields.hpp"
#include "tessera/core/error.hpp"

namespace tessera::model::detail {
namespace {

constexpr char llama_defaults[] = R"({
  "model_type": "llama", "attention_bias": false, "attention_dropout": 0.0, "bos_token_id": 1,
  "eos_token_id": 2, "head_dim": null, "hidden_act": "silu", "hidden_size": 4096,
  "initializer_range": 0.02, "intermediate_size": 11008, "max_position_embeddings": 2048,
  "mlp_bias": false, "num_attention_heads": 32, "num_hidden_layers": 32,
  "num_key_value_heads": null, "pad_token_id": null, "pretraining_tp": 1, "rms_norm_eps": 1e-06,
  "rope_parameters": {"rope_theta": 10000.0, "rope_type": "default"},
  "tie_word_embeddings": false, "use_cache": true, "vocab_size": 32000
})";

constexpr char mistral_defaults[] = R"({
  "model_type": "mistral", "attention_dropout": 0.0, "bos_token_id": 1, "eos_token_id": 2,
  "head_dim": null, "hidden_act": "silu", "hidden_size": 4096, "initializer_range": 0.02,
  "intermediate_size": 14336, "max_position_embeddings": 131072, "num_attention_heads": 32,
  "num_hidden_layers": 32, "num_key_value_heads": 8, "pad_token_id": null, "rms_norm_eps": 1e-06,
  "rope_parameters": {"rope_theta": 10000.0, "rope_type": "default"}, "sliding_window": 4096,
  "tie_word_embeddings": false, "use_cache": true, "vocab_size": 32000
})";

constexpr char qwen2_defaults[] = R"({
  "model_type": "qwen2", "attention_dropout": 0.0, "bos_token_id": null, "eos_token_id": null,
  "hidden_act": "silu", "hidden_size": 4096, "initializer_range": 0.02,
  "intermediate_size": 22016, "layer_types": null, "max_position_embeddings": 32768,
  "max_window_layers": 28, "num_attention_heads": 32, "num_hidden_layers": 32,
  "num_key_value_heads": 32, "pad_token_id": null, "rms_norm_eps": 1e-06,
  "rope_parameters": {"rope_theta": 10000.0, "rope_type": "default"}, "sliding_window": 4096,
  "tie_word_embeddings": false, "use_cache": true, "use_sliding_window": false,
  "vocab_size": 151936
})";

constexpr char qwen3_defaults[] = R"({
  "model_type": "qwen3", "attention_bias": false, "attention_dropout": 0.0, "bos_token_id": null,
  "eos_token_id": null, "head_dim": 128, "hidden_act": "silu", "hidden_size": 4096,
  "initializer_range": 0.02, "intermediate_size": 22016, "layer_types": null,
  "max_position_embeddings": 32768, "max_window_layers": 28, "num_attention_heads": 32,
  "num_hidden_layers": 32, "num_key_value_heads": 32, "pad_token_id": null,
  "rms_norm_eps": 1e-06, "rope_parameters": {"rope_theta": 10000.0, "rope_type": "default"},
  "sliding_window": 4096, "tie_word_embeddings": false, "use_cache": true,
  "use_sliding_window": false, "vocab_size": 151936
})";

std::int64_t window_of(Fields const& fields) { return fields.positive_or("sliding_window", 0); }

DecoderDescription describe_llama(ConfigTree const& config) {
  Fields const fields(config);
  DecoderDescription d = read_llama(config);
  read_attention_bias(d, fields);
  if (fields.flag("mlp_bias")) d.mlp.bias = Bias::zeros;
  return d;
}

DecoderDescription describe_mistral(ConfigTree const& config) {
  DecoderDescription d = read_llama(config);
  read_window(d, Fields(config));
  return d;
}

void read_upper_windows(DecoderDescription& d, ConfigTree const& config) {
  Fields const fields(config);
  if (!fields.flag("use_sliding_window")) return;
  std::int64_t const full = fields.integer("max_window_layers");
  read_layer_windows(d, config, [full](int layer) { return layer >= full; });
}

DecoderDescription describe_qwen2(ConfigTree const& config) {
  DecoderDescription d = read_llama(config);
  d.attention.qkv.bias = Bias::zeros;
  read_upper_windows(d, config);
  return d;
}

DecoderDescription describe_qwen3(ConfigTree const& config) {
  DecoderDescription d = read_llama(config);
  read_attention_bias(d, Fields(config));
  d.attention.head_norms = HeadNormScope::each_head;
  d.attention.head_norm = d.norm;
  d.attention.query_norm_name = "q_norm";
  d.attention.key_norm_name = "k_norm";
  read_upper_windows(d, config);
  return d;
}

/// nn.Embedding(vocab_size, hidden_size, pad_token_id): negative ids count from the end.
std::int64_t padding_id(Fields const& fields, std::int64_t vocabulary) {
  if (!fields.is_set("pad_token_id")) return -1;
  std::int64_t const id = fields.integer("pad_token_id");
  std::int64_t const row = id < 0 ? vocabulary + id : id;
  return row >= 0 && row < vocabulary ? row : -1;
}

}  // namespace

DecoderDescription read_llama(ConfigTree const& config, LlamaFields const& names) {
  Fields const fields(config);
  DecoderDescription d;
  d.names = {.block = "model.layers.{}",
             .attention = "self_attn",
             .mlp = "mlp",
             .before_attention = "input_layernorm",
             .before_mlp = "post_attention_layernorm",
             .final_norm = "model.norm",
             .head = "lm_head.weight"};
  std::int64_t const width = fields.positive("hidden_size");
  d.set_width(width).set_stddev(fields.deviation("initializer_range"));
  d.layers = fields.layers("num_hidden_layers");
  d.norm.kind = NormKind::rms;
  d.norm.epsilon = fields.epsilon(names.epsilon);
  d.tied = fields.flag("tie_word_embeddings");

  QkvOptions& qkv = d.attention.qkv;
  qkv.heads = fields.is_set("head_dim") ? static_cast<int>(fields.positive("num_attention_heads"))
                                        : fields.heads("num_attention_heads", "hidden_size");
  qkv.kv_heads = fields.is_set("num_key_value_heads")
                     ? fields.heads("num_key_value_heads", "num_attention_heads")
                     : qkv.heads;
  qkv.head_dim = static_cast<int>(fields.positive_or("head_dim", width / qkv.heads));
  qkv.layout = QkvLayout::separate;
  qkv.weights = WeightLayout::out_in;
  qkv.bias = Bias::none;
  qkv.names = {"q_proj", "k_proj", "v_proj"};
  d.attention.scale = 1.0 / std::sqrt(static_cast<double>(qkv.head_dim));
  d.attention.dropout = fields.probability("attention_dropout");
  d.attention.output_bias = Bias::none;
  d.attention.output_name = "o_proj";
  d.rotary = read_rotary(config, {.head_dim = qkv.head_dim,
                                  .partial_default = names.rotated_part,
                                  .names = names.rotary_names});

  d.embedding.token_name = "model.embed_tokens.weight";
  d.embedding.vocabulary = fields.positive("vocab_size");
  d.embedding.padding_id = padding_id(fields, d.embedding.vocabulary);
  d.embedding.positions = max_positions(config, *d.rotary);
  d.positions_field = "max_position_embeddings";

  d.mlp.kind = MlpKind::gated;
  d.mlp.activation = fields.activation(names.activation);
  d.mlp.inner = fields.positive("intermediate_size");
  d.mlp.layout = WeightLayout::out_in;
  d.mlp.bias = Bias::none;
  d.mlp.gate_name = "gate_proj";
  d.mlp.expand_name = "up_proj";
  d.mlp.project_name = "down_proj";
  return d;
}

void read_attention_bias(DecoderDescription& d, Fields const& fields) {
  if (!fields.flag("attention_bias")) return;
  d.attention.qkv.bias = d.attention.output_bias = Bias::zeros;
}

void read_window(DecoderDescription& d, Fields const& fields) {
  if (fields.is_set("sliding_window"))
    d.windows.assign(static_cast<std::size_t>(d.layers), window_of(fields));
}

void read_layer_windows(DecoderDescription& d, ConfigTree const& config,
                        std::function<bool(int)> const& slides) {
  Fields const fields(config);
  std::int64_t const window = window_of(fields);
  if (window == 0) return;
  if (!fields.is_set("layer_types")) {
    for (int layer = 0; layer < d.layers; ++layer) d.windows.push_back(slides(layer) ? window : 0);
    return;
  }
  ConfigTree const& types = config.at("layer_types");
  TESSERA_VALIDATE(types.is_array() && types.size() == static_cast<std::size_t>(d.layers),
                   ConfigError, "config.json: layer_types must be a list of ", d.layers,
                   " names, one per layer");
  for (auto const& type : types.as_array()) {
    bool const sliding = type == ConfigTree("sliding_attention");
    TESSERA_VALIDATE(sliding || type == ConfigTree("full_attention"), ConfigError,
                     "config.json: layer_types contains ", type.dump(),
                     "; supported are full_attention and sliding_attention");
    d.windows.push_back(sliding ? window : 0);
  }
}

Family llama_family() { return {"llama", "LlamaForCausalLM", llama_defaults, {}, describe_llama}; }

Family mistral_family() {
  return {"mistral", "MistralForCausalLM", mistral_defaults, {}, describe_mistral};
}

Family qwen2_family() { return {"qwen2", "Qwen2ForCausalLM", qwen2_defaults, {}, describe_qwen2}; }

Family qwen3_family() { return {"qwen3", "Qwen3ForCausalLM", qwen3_defaults, {}, describe_qwen3}; }

}  // namespace tessera::model::detail
