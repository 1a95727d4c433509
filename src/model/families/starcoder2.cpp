#include "families/family.hpp"

namespace tessera::model::detail {
namespace {

constexpr char starcoder2_defaults[] = R"({
  "model_type": "starcoder2", "attention_dropout": 0.0, "bos_token_id": 50256,
  "embedding_dropout": 0.0, "eos_token_id": 50256, "hidden_act": "gelu_pytorch_tanh",
  "hidden_size": 3072, "initializer_range": 0.018042, "intermediate_size": 12288,
  "max_position_embeddings": 4096, "norm_epsilon": 1e-05, "num_attention_heads": 24,
  "num_hidden_layers": 30, "num_key_value_heads": 2, "pad_token_id": null,
  "residual_dropout": 0.0, "rope_parameters": {"rope_theta": 10000.0, "rope_type": "default"},
  "sliding_window": null, "tie_word_embeddings": true, "use_bias": true, "use_cache": true,
  "vocab_size": 49152
})";

DecoderDescription describe_starcoder2(ConfigTree const& config) {
  Fields const fields(config);
  DecoderDescription d = read_llama(config, {.epsilon = "norm_epsilon"});
  d.norm.kind = NormKind::layer;
  if (fields.flag("use_bias"))
    d.attention.qkv.bias = d.attention.output_bias = d.mlp.bias = Bias::zeros;
  read_window(d, fields);
  d.residual_dropout = fields.probability("residual_dropout");
  d.embedding.dropout = fields.probability("embedding_dropout");
  d.mlp.kind = MlpKind::plain;
  d.mlp.expand_name = "c_fc";
  d.mlp.project_name = "c_proj";
  return d;
}

}  // namespace

Family starcoder2_family() {
  return {"starcoder2", "Starcoder2ForCausalLM", starcoder2_defaults, {}, describe_starcoder2};
}

}  // namespace tessera::model::detail
