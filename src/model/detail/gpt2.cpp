#include "detail/gpt2.hpp"

#include <cmath>

#include "detail/decoder.hpp"
#include "detail/fields.hpp"
#include "tessera/core/error.hpp"

namespace tessera::model::detail {
namespace {

struct Gpt2Config {
  std::int64_t vocabulary, positions, width, inner;
  int layers, heads;
  double residual_dropout, embedding_dropout, attention_dropout;
  double epsilon, initializer_range;
  bool scale_weights, scale_by_inverse_layer, tied;
};

ConfigTree default_config() {
  return ConfigTree(ConfigTree::Object{{"architectures", ConfigTree::Array{"GPT2LMHeadModel"}},
                                       {"model_type", "gpt2"},
                                       {"activation_function", "gelu_new"},
                                       {"add_cross_attention", false},
                                       {"attn_pdrop", 0.1},
                                       {"bos_token_id", 50256},
                                       {"embd_pdrop", 0.1},
                                       {"eos_token_id", 50256},
                                       {"initializer_range", 0.02},
                                       {"layer_norm_epsilon", 1e-5},
                                       {"n_embd", 768},
                                       {"n_head", 12},
                                       {"n_inner", nullptr},
                                       {"n_layer", 12},
                                       {"n_positions", 1024},
                                       {"pad_token_id", nullptr},
                                       {"reorder_and_upcast_attn", false},
                                       {"resid_pdrop", 0.1},
                                       {"scale_attn_by_inverse_layer_idx", false},
                                       {"scale_attn_weights", true},
                                       {"summary_activation", nullptr},
                                       {"summary_first_dropout", 0.1},
                                       {"summary_proj_to_labels", true},
                                       {"summary_type", "cls_index"},
                                       {"summary_use_proj", true},
                                       {"tie_word_embeddings", true},
                                       {"use_cache", true},
                                       {"vocab_size", 50257}});
}

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

/// Limits far above any model. Within them no product of sizes overflows and no list of layers
/// exhausts memory.
constexpr int max_layers = 100'000;
constexpr double max_parameters = 1e15;

/// In floating point: cannot overflow.
double parameter_count(Gpt2Config const& c) {
  auto const width = static_cast<double>(c.width), inner = static_cast<double>(c.inner);
  double const layer = 4 * width * width + 2 * width * inner + 9 * width + inner;
  double const embeddings =
      static_cast<double>(c.vocabulary) * (c.tied ? 1 : 2) + static_cast<double>(c.positions);
  return embeddings * width + c.layers * layer + 2 * width;
}

Gpt2Config read(ConfigTree const& config) {
  Fields const fields(config);
  refuse_unsupported(fields, config);
  Gpt2Config const c{.vocabulary = fields.positive("vocab_size"),
                     .positions = fields.positive("n_positions"),
                     .width = fields.positive("n_embd"),
                     .inner = fields.is_set("n_inner") ? fields.positive("n_inner")
                                                       : 4 * fields.positive("n_embd"),
                     .layers = static_cast<int>(fields.positive("n_layer")),
                     .heads = static_cast<int>(fields.positive("n_head")),
                     .residual_dropout = fields.probability("resid_pdrop"),
                     .embedding_dropout = fields.probability("embd_pdrop"),
                     .attention_dropout = fields.probability("attn_pdrop"),
                     .epsilon = fields.real("layer_norm_epsilon"),
                     .initializer_range = fields.real("initializer_range"),
                     .scale_weights = fields.flag("scale_attn_weights"),
                     .scale_by_inverse_layer = fields.flag("scale_attn_by_inverse_layer_idx"),
                     .tied = fields.flag("tie_word_embeddings")};
  TESSERA_VALIDATE(c.width % c.heads == 0, ConfigError, "config.json: n_embd ", c.width,
                   " is not a multiple of n_head ", c.heads,
                   "; every head needs n_embd / n_head columns");
  TESSERA_VALIDATE(c.layers <= max_layers, ConfigError, "config.json: n_layer is ", c.layers,
                   "; at most ", max_layers, " are built");
  double const parameters = parameter_count(c);
  TESSERA_VALIDATE(parameters <= max_parameters, ConfigError, "config.json describes ", parameters,
                   " parameters; at most ", max_parameters, " are built");
  TESSERA_VALIDATE(c.epsilon > 0.0, ConfigError, "config.json: layer_norm_epsilon is ", c.epsilon,
                   "; it must be positive (usually 1e-5)");
  TESSERA_VALIDATE(c.initializer_range >= 0.0, ConfigError, "config.json: initializer_range is ",
                   c.initializer_range, "; a standard deviation cannot be negative");
  return c;
}

AttentionOptions attention_options(Gpt2Config const& c, int layer, double projection_stddev) {
  int const head_dim = static_cast<int>(c.width / c.heads);
  double scale = c.scale_weights ? 1.0 / std::sqrt(static_cast<double>(head_dim)) : 1.0;
  if (c.scale_by_inverse_layer) scale /= layer + 1;
  return {.width = c.width,
          .heads = c.heads,
          .kv_heads = c.heads,
          .head_dim = head_dim,
          .scale = scale,
          .dropout = c.attention_dropout,
          .layer = layer,
          .stddev = c.initializer_range,
          .projection_stddev = projection_stddev};
}

/// Parameters in the order of the module: ln_1, attn.c_attn, attn.c_proj, ln_2, mlp.c_fc,
/// mlp.c_proj.
Block make_block(UnitSpec& unit, Gpt2Config const& c, int layer) {
  std::string const name = concat("transformer.h.", layer);
  double const projection_stddev = c.initializer_range / std::sqrt(2.0 * c.layers);
  LayerNorm const norm_1(unit, name + ".ln_1", c.width, c.epsilon);
  CausalSelfAttention attention(unit, name + ".attn",
                                attention_options(c, layer, projection_stddev));
  LayerNorm const norm_2(unit, name + ".ln_2", c.width, c.epsilon);
  Mlp mlp(unit, name + ".mlp",
          {.width = c.width,
           .inner = c.inner,
           .stddev = c.initializer_range,
           .projection_stddev = projection_stddev});
  return Block({.layer = layer, .width = c.width, .residual_dropout = c.residual_dropout}, norm_1,
               std::move(attention), norm_2, std::move(mlp));
}

Embedding make_embedding(UnitSpec& unit, Gpt2Config const& c) {
  std::vector<std::string> aliases;
  if (c.tied) aliases.push_back("lm_head.weight");
  return Embedding(unit, {.token_name = "transformer.wte.weight",
                          .position_name = "transformer.wpe.weight",
                          .token_aliases = std::move(aliases),
                          .vocabulary = c.vocabulary,
                          .positions = c.positions,
                          .width = c.width,
                          .stddev = c.initializer_range,
                          .dropout = c.embedding_dropout});
}

LmHead make_head(UnitSpec& unit, Gpt2Config const& c) {
  LmHead head(LayerNorm(unit, "transformer.ln_f", c.width, c.epsilon),
              {.width = c.width, .vocabulary = c.vocabulary});
  if (!c.tied) head.own_projection(unit, "lm_head.weight", c.initializer_range);
  return head;
}

std::string_view torch_name(Dtype dtype) {
  return dtype == Dtype::bf16 ? "bfloat16" : dtype == Dtype::fp16 ? "float16" : "float32";
}

std::unique_ptr<CausalLm> make(ConfigTree config, Dtype dtype) {
  Gpt2Config const c = read(config);
  config.set("architectures", ConfigTree::Array{"GPT2LMHeadModel"});
  config.erase("torch_dtype");
  config.set("dtype", torch_name(dtype));

  std::vector<UnitSpec> units{{.name = "embedding", .parameters = {}}};
  Embedding embedding = make_embedding(units.back(), c);
  std::vector<Block> blocks;
  for (int layer = 0; layer < c.layers; ++layer) {
    units.push_back({.name = concat("block.", layer), .parameters = {}});
    blocks.push_back(make_block(units.back(), c, layer));
  }
  units.push_back({.name = "head", .parameters = {}});
  LmHead head = make_head(units.back(), c);
  return std::make_unique<Decoder>(DecoderParts{.family = "gpt2",
                                                .config = std::move(config),
                                                .dtype = dtype,
                                                .width = c.width,
                                                .positions = c.positions,
                                                .units = std::move(units),
                                                .embedding = std::move(embedding),
                                                .blocks = std::move(blocks),
                                                .head = std::move(head)});
}

}  // namespace

Family const& gpt2_family() {
  static Family const family{.model_type = "gpt2",
                             .default_config = default_config,
                             .aliases = {{"hidden_size", "n_embd"},
                                         {"max_position_embeddings", "n_positions"},
                                         {"num_attention_heads", "n_head"},
                                         {"num_hidden_layers", "n_layer"}},
                             .make = make};
  return family;
}

}  // namespace tessera::model::detail
