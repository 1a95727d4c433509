#include "decoder/assemble.hpp"

#include "decoder/decoder.hpp"
#include "tessera/core/error.hpp"
#include "tessera/core/text.hpp"

namespace tessera::model::detail {
namespace {

/// Far above any model. Below it no product of sizes overflows.
constexpr double max_parameters = 1e15;

/// Counts the elements of the matrices in floating point, which cannot overflow.
double matrix_elements(DecoderDescription const& d) {
  auto const real = [](std::int64_t n) { return static_cast<double>(n); };
  QkvOptions const& qkv = d.attention.qkv;
  double const width = real(qkv.width), heads = qkv.heads, kv_heads = qkv.kv_heads;
  double const mlp_matrices = d.mlp.kind == MlpKind::plain ? 2 : 3;
  double const layer =
      2 * width * qkv.head_dim * (heads + kv_heads) + mlp_matrices * width * real(d.mlp.inner);
  double const rows = real(d.embedding.vocabulary) * (d.tied ? 1 : 2) + real(d.embedding.positions);
  return rows * width + d.layers * layer;
}

void check_size(DecoderDescription const& d) {
  double const elements = matrix_elements(d);
  TESSERA_VALIDATE(elements <= max_parameters, ConfigError, "config.json describes ", elements,
                   " parameters; at most ", max_parameters, " are built");
}

std::string below(std::string pattern, int layer) {
  std::size_t const at = pattern.find("{}");
  return at == std::string::npos ? pattern : pattern.replace(at, 2, std::to_string(layer));
}

/// Parameters in the order of Hugging Face's modules: a branch's norms around the branch.
Block make_block(UnitSpec& unit, DecoderDescription const& d, int layer) {
  std::string const name = below(d.names.block, layer) + ".";
  auto const norm = [&](std::string const& of) {
    return of.empty() ? std::nullopt : std::optional(Norm(unit, name + of, d.norm));
  };
  AttentionOptions options = d.attention;
  options.layer = layer;
  if (d.scale_by_inverse_layer) options.scale /= layer + 1;
  if (!d.windows.empty()) options.mask.window = d.windows.at(static_cast<std::size_t>(layer));
  if (d.rotary) options.rotary_dim = d.rotary->rotary_dim;
  BlockNorms norms;
  norms.before_attention = norm(d.names.before_attention);
  CausalSelfAttention attention(unit, name + d.names.attention, options);
  norms.after_attention = norm(d.names.after_attention);
  norms.before_mlp = norm(d.names.before_mlp);
  Mlp mlp(unit, name + d.names.mlp, d.mlp);
  norms.after_mlp = norm(d.names.after_mlp);
  return Block({.layer = layer,
                .width = options.qkv.width,
                .residual_dropout = d.residual_dropout,
                .residual = d.residual},
               norms, std::move(attention), std::move(mlp));
}

void freeze_all(std::vector<UnitSpec>& units) {
  for (auto& unit : units)
    for (auto& parameter : unit.parameters) parameter.trains = false;
}

/// Freezes what the units of the blocks have, and adds adapters to the linear layers that they are
/// for.
void adapt(std::vector<UnitSpec>& units, std::vector<Block>& blocks, LoraOptions const& options) {
  freeze_all(units);
  std::string names;
  bool is_any = false;
  for (std::size_t i = 0; i < blocks.size(); ++i) {
    LinearPlace place{static_cast<int>(i), 0};
    blocks[i].visit_linear([&](Linear& layer) {
      if (i == 0) names += concat(names.empty() ? "" : ", ", layer.name());
      if (options.is_target(layer.name())) {
        layer.adapt(units[i], options, place);
        is_any = true;
      }
      ++place.index;
    });
  }
  TESSERA_VALIDATE(is_any, ConfigError, "LoRA's target_modules ",
                   options.pattern.empty() ? join(options.targets) : "'" + options.pattern + "'",
                   " name no linear layer of a block; the first block has ", names);
}

DecoderLayers make_blocks(DecoderDescription const& d) {
  DecoderLayers out{.units = {},
                    .layers = {},
                    .cached_layers = d.layers,
                    .kv_heads = d.attention.qkv.kv_heads,
                    .head_dim = d.attention.qkv.head_dim};
  std::vector<Block> blocks;
  for (int layer = 0; layer < d.layers; ++layer) {
    out.units.push_back({.name = concat("block.", layer), .parameters = {}});
    blocks.push_back(make_block(out.units.back(), d, layer));
  }
  if (d.lora) adapt(out.units, blocks, *d.lora);
  for (auto& block : blocks) out.layers.push_back(std::make_unique<BlockLayer>(std::move(block)));
  return out;
}

Embedding make_embedding(UnitSpec& unit, DecoderDescription const& d) {
  EmbeddingOptions options = d.embedding;
  if (d.tied) options.token_aliases.push_back(d.names.head);
  return Embedding(unit, options);
}

LmHead make_head(UnitSpec& unit, DecoderDescription const& d) {
  LmHead head(Norm(unit, d.names.final_norm, d.norm),
              {.width = d.embedding.width,
               .vocabulary = d.head_outputs > 0 ? d.head_outputs : d.embedding.vocabulary,
               .label_smoothing = d.label_smoothing,
               .dynamic_loss = d.dynamic_loss,
               .soft_cap = d.logit_cap});
  if (!d.tied) head.own_projection(unit, d.names.head, d.head_stddev);
  if (!d.names.head_bias.empty()) head.own_bias(unit, d.names.head_bias);
  return head;
}

}  // namespace

std::unique_ptr<CausalLm> make_decoder(std::string family, DecoderDescription const& d,
                                       DecoderLayers layers, ConfigTree config,
                                       DecoderDtypes dtypes) {
  std::vector<UnitSpec> ends{{.name = "embedding", .parameters = {}},
                             {.name = "head", .parameters = {}}};
  Embedding embedding = make_embedding(ends.front(), d);
  LmHead head = make_head(ends.back(), d);
  if (d.tied) marked_for_products(ends.front(), embedding.token_weights());
  if (d.lora) freeze_all(ends);
  auto units = std::move(layers.units);
  units.insert(units.begin(), std::move(ends.front()));
  units.push_back(std::move(ends.back()));
  if (d.lora && !d.lora->modules_to_save.empty()) train_saved_modules(units, *d.lora);
  if (!d.frozen.empty()) freeze(units, d.frozen);
  return std::make_unique<Decoder>(DecoderParts{.family = std::move(family),
                                                .config = std::move(config),
                                                .dtype = dtypes.weights,
                                                .product_dtype = dtypes.products,
                                                .fp8 = dtypes.fp8,
                                                .width = d.embedding.width,
                                                .positions = d.embedding.positions,
                                                .positions_field = d.positions_field,
                                                .units = std::move(units),
                                                .embedding = std::move(embedding),
                                                .layers = std::move(layers.layers),
                                                .head = head,
                                                .rotary = d.rotary,
                                                .cached_layers = layers.cached_layers,
                                                .kv_heads = layers.kv_heads,
                                                .head_dim = layers.head_dim,
                                                .documents = d.documents,
                                                .head_outputs = d.head_outputs,
                                                .head_name = d.names.head,
                                                .replaced_head = d.replaced_head});
}

std::unique_ptr<CausalLm> make_decoder(std::string family, DecoderDescription const& d,
                                       ConfigTree config, DecoderDtypes dtypes) {
  check_size(d);
  return make_decoder(std::move(family), d, make_blocks(d), std::move(config), dtypes);
}

}  // namespace tessera::model::detail
