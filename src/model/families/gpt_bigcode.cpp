#include "families/family.hpp"

namespace tessera::model::detail {
namespace {

constexpr char gpt_bigcode_defaults[] = R"({
  "model_type": "gpt_bigcode", "activation_function": "gelu_pytorch_tanh",
  "add_cross_attention": false, "attention_softmax_in_fp32": true, "attn_pdrop": 0.1,
  "bos_token_id": 50256, "embd_pdrop": 0.1, "eos_token_id": 50256, "initializer_range": 0.02,
  "layer_norm_epsilon": 1e-05, "multi_query": true, "n_embd": 768, "n_head": 12, "n_inner": null,
  "n_layer": 12, "n_positions": 1024, "pad_token_id": null, "resid_pdrop": 0.1,
  "scale_attention_softmax_in_fp32": true, "scale_attn_weights": true,
  "tie_word_embeddings": true, "use_cache": true, "vocab_size": 50257
})";

/// attention_softmax_in_fp32 and scale_attention_softmax_in_fp32 change nothing: scores and softmax
/// are always fp32.
DecoderDescription describe_gpt_bigcode(ConfigTree const& config) {
  Fields const fields(config);
  fields.refuse("add_cross_attention",
                "a language model has no encoder to attend to, set it to false");
  fields.refuse("pruned_heads", "export the model with all its heads");
  DecoderDescription d = read_gpt2(fields);
  d.mlp.activation = fields.activation("activation_function");
  d.mlp.layout = d.attention.qkv.weights = WeightLayout::out_in;
  if (fields.flag("multi_query"))
    d.attention.qkv.kv_heads = 1;
  else
    d.attention.qkv.layout = QkvLayout::fused_per_head;
  return d;
}

}  // namespace

Family gpt_bigcode_family() {
  return {.model_type = "gpt_bigcode",
          .architecture = "GPTBigCodeForCausalLM",
          .default_config = gpt_bigcode_defaults,
          .aliases = gpt2_family().aliases,
          .describe = describe_gpt_bigcode};
}

}  // namespace tessera::model::detail
